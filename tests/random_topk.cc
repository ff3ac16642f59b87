// tests/random_topk.cc: makes picks from shuffled blocks, with unused slots.
#include "tests/random_topk.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <string>

namespace tessera::testing {
namespace {

using Random = std::mt19937_64;

int64_t between(Random& random, int64_t least, int64_t most) {
  return least + static_cast<int64_t>(random() %
                                      static_cast<uint64_t>(most - least + 1));
}

void add_query(Random& random, int64_t blocks, RandomTopk& c) {
  std::vector<int32_t> all(static_cast<size_t>(blocks));
  std::iota(all.begin(), all.end(), 0);
  std::shuffle(all.begin(), all.end(), random);
  const bool none = random() % 8 == 0;
  for (int64_t i = 0; i < c.k; ++i) {
    const bool used = !none && i < blocks && random() % 4 != 0;
    c.values.push_back(used ? all[static_cast<size_t>(i)] : -1);
  }
}

RandomTopk topk_case(uint64_t seed, int64_t number) {
  Random random(seed * 1000 + static_cast<uint64_t>(number));
  constexpr int64_t kGranularities[] = {1, 4, 64, 128};
  RandomTopk c;
  c.granularity = kGranularities[number % 4];
  const int64_t forms[] = {1, c.kv_heads, c.heads};
  c.groups = forms[number / 4 % 3];
  c.causal = random() % 2 == 0;
  Request& r = c.request;
  r.masks = {*parse_mask((c.causal ? "causal & blocks(" : "blocks(") +
                         std::to_string(c.granularity) + ")")};
  r.batch = between(random, 1, 2);
  r.kv_len = between(random, 20, c.granularity > 4 ? 400 : 120);
  r.q_len = between(random, 1, std::min<int64_t>(r.kv_len, 70));
  r.tile = {between(random, 8, 40), between(random, 8, 150)};
  const int64_t blocks = (r.kv_len + c.granularity - 1) / c.granularity;
  c.k = between(random, 1, std::min<int64_t>(blocks + 1, 12));
  for (int64_t i = 0; i < r.batch * r.q_len * c.groups; ++i) {
    add_query(random, blocks, c);
  }
  c.shape = {r.batch * r.q_len, c.groups, c.k};
  if (c.groups == 1 && random() % 2 == 0) {
    c.shape = {r.batch * r.q_len, c.k};
  } else if (random() % 2 == 0) {
    c.shape = {r.batch, r.q_len, c.groups, c.k};
  }
  for (int64_t b = 0; b < r.batch; ++b) {
    c.counts.push_back(
        static_cast<int32_t>(r.kv_len - between(random, 0, 1) * 9));
  }
  return c;
}

}  // namespace

Facts RandomTopk::facts() const {
  Facts out;
  out.valid_token_counts = counts;
  return out;
}

bool RandomTopk::legal(int64_t b, int64_t group, int64_t q, int64_t key) const {
  const int64_t count = counts[static_cast<size_t>(b)];
  const int64_t position = q + request.kv_len - request.q_len;
  if (key >= count || position >= count) return false;
  if (causal && key > position) return false;
  const int64_t at = ((b * request.q_len + q) * groups + group) * k;
  for (int64_t i = 0; i < k; ++i) {
    const int64_t block = values[static_cast<size_t>(at + i)];
    if (block >= 0 && key >= block * granularity &&
        key < (block + 1) * granularity) {
      return true;
    }
  }
  return false;
}

std::vector<RandomTopk> topk_cases(uint64_t seed, int64_t count) {
  std::vector<RandomTopk> out;
  for (int64_t i = 0; i < count; ++i) out.push_back(topk_case(seed, i));
  return out;
}

}  // namespace tessera::testing
