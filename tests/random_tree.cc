// tests/random_tree.cc: draws a parent for each token, then numbers the tree.
#include "tests/random_tree.h"

#include <algorithm>

namespace tessera::testing {
namespace {

int64_t below(std::mt19937_64& random, int64_t n) {
  return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
}

// How many tokens of the path to the last token the path to the next one keeps.
int64_t keep(std::mt19937_64& random, int64_t kind, int64_t token,
             int64_t depth) {
  switch (kind) {
    case 0:  // one chain
      return depth;
    case 1:  // every token for itself
      return 0;
    case 2:  // leaves along a spine: many short intervals on each way
      return token % 2 == 0 ? depth : depth - 1;
    case 3:  // chains that share a prefix
      return below(random, 8) == 0 ? std::min<int64_t>(depth, 3) : depth;
    case 4:  // bushy
      return std::max<int64_t>(0, depth - below(random, 4));
    case 5:  // several trees
      return below(random, 10) == 0 ? 0 : depth - below(random, 2);
    case 6:  // down, then up step by step, a leaf at each
      return token < 40 ? depth : std::max<int64_t>(0, depth - 2);
    default:  // a branch now and then, anywhere
      return below(random, 6) == 0 ? below(random, depth + 1) : depth;
  }
}

}  // namespace

void append_random_tree(std::mt19937_64& random, int64_t n, int64_t valid,
                        std::vector<int32_t>& enter,
                        std::vector<int32_t>& leave) {
  const auto first = static_cast<int64_t>(enter.size());
  const int64_t kind = below(random, 9);
  // Numbers may leave gaps, and need not begin at 0.
  const int64_t gap = below(random, 3) == 0 ? 5 : 1;
  int64_t next = below(random, 2) == 0 ? 0 : below(random, 1000) - 500;
  std::vector<int64_t> open;  // tokens of the current path
  const auto close_to = [&](int64_t depth) {
    while (static_cast<int64_t>(open.size()) > depth) {
      next += below(random, gap);
      leave[static_cast<size_t>(first + open.back())] =
          static_cast<int32_t>(next);
      open.pop_back();
    }
  };
  for (int64_t t = 0; t < n; ++t) {
    enter.push_back(static_cast<int32_t>(below(random, 2000) - 1000));
    leave.push_back(static_cast<int32_t>(below(random, 2000) - 1000));
    if (t >= valid) continue;
    const auto depth = static_cast<int64_t>(open.size());
    close_to(std::clamp<int64_t>(keep(random, kind, t, depth), 0, depth));
    next += below(random, gap);
    enter.back() = static_cast<int32_t>(next++);
    open.push_back(t);
  }
  close_to(0);
}

bool is_tree(const int32_t* enter, const int32_t* leave, int64_t n) {
  for (int64_t a = 0; a < n; ++a) {
    if (leave[a] <= enter[a]) return false;
    for (int64_t b = a + 1; b < n; ++b) {
      const bool apart = enter[b] >= leave[a];
      const bool within = enter[b] < leave[a] && leave[b] <= leave[a];
      if (enter[b] <= enter[a] || (!apart && !within)) return false;
    }
  }
  return true;
}

}  // namespace tessera::testing
