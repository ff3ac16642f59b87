// mask/tree.cc: checks a tree and finds its runs.
#include "mask/tree.h"

#include <algorithm>

#include "base/fail.h"

namespace tessera::mask {
namespace {

// The end of the run of equal `leave` that begins at token t, or the first
// token that breaks the order.
int64_t run_end(const int32_t* enter, const int32_t* leave, int64_t t,
                int64_t n) {
  int64_t end = t + 1;
  while (end < n && leave[end] == leave[t] && enter[end] > enter[end - 1] &&
         enter[end] < leave[end]) {
    ++end;
  }
  return end;
}

Result<void> check_token(const int32_t* enter, const int32_t* leave, int64_t t,
                         int64_t batch_row) {
  if (t > 0 && enter[t] <= enter[t - 1]) {
    return invalid("facts",
                   "tree_enter must rise from token to token, found {} after "
                   "{} for token {} of row {}",
                   enter[t], enter[t - 1], t, batch_row);
  }
  if (leave[t] <= enter[t]) {
    return invalid("facts",
                   "tree_leave must be above tree_enter, found {} at {} for "
                   "token {} of row {}",
                   leave[t], enter[t], t, batch_row);
  }
  return {};
}

// Merges adjacent runs that end together, even if their `leave` differs.
void merge_runs(Tree& tree) {
  std::vector<int32_t>& now = tree.head;  // temporary: new index of each run
  now.resize(tree.end.size());
  int32_t count = 0;
  for (size_t r = 0; r < tree.end.size(); ++r) {
    const bool same = r > 0 && tree.end[r] == tree.end[r - 1];
    now[r] = same ? count - 1 : count++;
    if (same) continue;
    const auto to = static_cast<size_t>(now[r]);
    const int32_t parent = tree.parent[r];
    tree.start[to] = tree.start[r];
    tree.end[to] = tree.end[r];
    tree.parent[to] = parent < 0 ? -1 : now[static_cast<size_t>(parent)];
  }
  const auto n = static_cast<size_t>(count);
  tree.start[n] = tree.start.back();
  tree.start.resize(n + 1);
  tree.end.resize(n);
  tree.parent.resize(n);
  tree.head.resize(n);
}

}  // namespace

Result<void> read_tree(const int32_t* enter, const int32_t* leave, int64_t n,
                       int64_t batch_row, Tree& tree) {
  tree.start.clear();
  tree.end.clear();
  tree.parent.clear();
  int32_t open = -1;  // the innermost run that has not ended
  bool merge = false;
  for (int64_t t = 0; t < n;) {
    if (auto e = check_token(enter, leave, t, batch_row); !e) return e;
    const auto token = static_cast<int32_t>(t);
    while (open >= 0 &&
           leave[tree.start[static_cast<size_t>(open)]] <= enter[t]) {
      tree.end[static_cast<size_t>(open)] = token;
      open = tree.parent[static_cast<size_t>(open)];
    }
    if (open >= 0) {
      const int32_t outer = leave[tree.start[static_cast<size_t>(open)]];
      if (leave[t] > outer) {
        return invalid("facts",
                       "subtrees must be nested, found one that leaves at {} "
                       "in one that leaves at {} for token {} of row {}",
                       leave[t], outer, t, batch_row);
      }
    }
    tree.start.push_back(token);
    tree.end.push_back(static_cast<int32_t>(n));
    tree.parent.push_back(open);
    open = static_cast<int32_t>(tree.end.size()) - 1;
    t = run_end(enter, leave, t, n);
  }
  tree.start.push_back(static_cast<int32_t>(n));
  for (size_t r = 1; r < tree.end.size(); ++r) {
    merge |= tree.end[r] == tree.end[r - 1];
  }
  if (merge) merge_runs(tree);
  tree.head.resize(tree.end.size());
  for (size_t r = 0; r < tree.end.size(); ++r) {
    const bool follows = r > 0 && tree.parent[r] == static_cast<int32_t>(r) - 1;
    tree.head[r] = follows ? tree.head[r - 1] : static_cast<int32_t>(r);
  }
  return {};
}

int32_t end_of_subtree(const Tree& tree, int64_t t) {
  const auto next = std::upper_bound(tree.start.begin(), tree.start.end(), t);
  if (next == tree.start.end()) return 0;
  return tree.end[static_cast<size_t>(next - tree.start.begin()) - 1];
}

void append_path(const Tree& tree, int64_t r, int64_t above,
                 std::vector<Interval>& out) {
  const auto first = static_cast<std::ptrdiff_t>(out.size());
  while (r > above) {
    const int64_t head = std::max<int64_t>(tree.head[r], above + 1);
    out.push_back({tree.start[head], tree.start[r + 1]});
    r = head == above + 1 && above >= tree.head[r] ? above : tree.parent[head];
  }
  std::reverse(out.begin() + first, out.end());
}

}  // namespace tessera::mask
