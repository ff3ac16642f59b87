// tests/kernel_case.cc: legal pairs of many kinds, and their arrays.
#include "tests/kernel_case.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>

namespace tessera::testing {
namespace {

size_t index(int64_t i) { return static_cast<size_t>(i); }

int64_t draw(std::mt19937_64& random, int64_t least, int64_t most) {
  return least + static_cast<int64_t>(random() %
                                      static_cast<uint64_t>(most - least + 1));
}

template <class T, size_t n>
T one_of(std::mt19937_64& random, const T (&values)[n]) {
  return values[random() % n];
}

// Sets keys [begin, end) of a row of `n` keys.
void set_run(uint8_t* row, int64_t n, int64_t begin, int64_t end) {
  begin = std::clamp<int64_t>(begin, 0, n);
  end = std::clamp<int64_t>(end, begin, n);
  std::fill(row + begin, row + end, uint8_t{1});
}

std::vector<uint8_t> legal_pairs(std::mt19937_64& random, int64_t q_len,
                                 int64_t kv_len) {
  std::vector<uint8_t> legal(index(q_len * kv_len));
  const int64_t kind = draw(random, 0, 4);
  const int64_t width = draw(random, 1, kv_len);
  const int64_t offset = kv_len - q_len;
  for (int64_t q = 0; q < q_len; ++q) {
    uint8_t* const row = legal.data() + q * kv_len;
    if (kind == 0) set_run(row, kv_len, 0, kv_len);
    if (kind == 1) set_run(row, kv_len, 0, q + offset + 1);
    if (kind == 2) set_run(row, kv_len, q + offset + 1 - width, q + offset + 1);
    for (int64_t i = draw(random, 1, 4); kind == 3 && i > 0; --i) {
      const int64_t begin = draw(random, 0, kv_len - 1);
      set_run(row, kv_len, begin, begin + draw(random, 1, width));
    }
    // Documents: a query attends to those of its own.
    if (kind == 4) {
      const int64_t document = q * kv_len / q_len / width;
      set_run(row, kv_len, document * width, (document + 1) * width);
    }
  }
  if (draw(random, 0, 2) == 0) {
    for (int64_t n = draw(random, 1, 3); n > 0; --n) {
      uint8_t* const row = legal.data() + draw(random, 0, q_len - 1) * kv_len;
      std::fill(row, row + kv_len, uint8_t{0});
    }
  }
  if (draw(random, 0, 2) == 0) {
    const int64_t begin = draw(random, 0, kv_len - 1);
    const int64_t end = std::min(kv_len, begin + draw(random, 1, 20));
    for (int64_t q = 0; q < q_len; ++q) {
      std::fill(legal.begin() + q * kv_len + begin,
                legal.begin() + q * kv_len + end, uint8_t{0});
    }
  }
  return legal;
}

void set_picks(KernelCase& c) {
  RandomCase& p = c.attention.plan;
  p.pick_k = 1;
  for (int64_t q = 0; q < p.q_len; ++q) {
    const auto row = c.legal.begin() + q * p.kv_len;
    p.pick_k = std::max<int64_t>(p.pick_k,
                                 std::count(row, row + p.kv_len, uint8_t{1}));
  }
  p.picks.emplace(index(p.q_len * p.pick_k), -1);
  for (int64_t q = 0; q < p.q_len; ++q) {
    auto to = p.picks->begin() + q * p.pick_k;
    for (int64_t k = 0; k < p.kv_len; ++k) {
      if (c.is_legal(q, k)) *to++ = static_cast<int32_t>(k);
    }
  }
}

}  // namespace

int64_t KernelCase::pairs() const {
  return std::count(legal.begin(), legal.end(), uint8_t{1});
}

bool KernelCase::has_key(int64_t q) const {
  const auto row = legal.begin() + q * kv_len();
  return std::find(row, row + kv_len(), uint8_t{1}) != row + kv_len();
}

bool KernelCase::is_live(int64_t k, int64_t begin, int64_t end) const {
  for (int64_t q = begin; q < end; ++q) {
    if (is_legal(q, k)) return true;
  }
  return false;
}

KernelCase kernel_case(const KernelSizes& sizes, uint64_t seed) {
  std::mt19937_64 random(seed * 0x9E3779B97F4A7C15u + 3);
  KernelCase c;
  AttentionCase& a = c.attention;
  a.plan.seed = seed;
  a.plan.masks = {blocks(1)};
  a.plan.q_len = sizes.q_len;
  a.plan.kv_len = sizes.kv_len;
  a.shape.heads = sizes.heads;
  a.shape.kv_heads = 1;
  a.shape.head_dim = sizes.head_dim;
  a.shape.v_head_dim = sizes.v_head_dim;
  a.shape.softcap = one_of(random, {0.0, 0.0, 0.0, 15.0, 50.0});
  if (random() % 4 == 0) a.shape.scale = one_of(random, {-0.3, 0.0, 0.7, 2.0});
  a.dtype = one_of(random, {Dtype::f32, Dtype::bf16, Dtype::f16});
  a.layout = static_cast<Layout>(random() % 4);
  a.lse = random() % 4 != 0;
  a.q_size = one_of(random, {1.0, 1.0, 1.0, 30.0});
  a.seed = random();
  c.legal = legal_pairs(random, sizes.q_len, sizes.kv_len);
  set_picks(c);
  return c;
}

int64_t edge_size(std::mt19937_64& random, int64_t most) {
  const int64_t step = one_of(random, {4, 8, 16, 32, 64, 128});
  const int64_t multiple = step * draw(random, 0, 3);
  return std::clamp<int64_t>(multiple + draw(random, -1, 1), 1, most);
}

std::vector<LegalRun> legal_runs(const KernelCase& c, int64_t q, int64_t begin,
                                 int64_t end) {
  std::vector<LegalRun> runs;
  for (int64_t k = begin; k < end; ++k) {
    if (!c.is_legal(q, k)) continue;
    if (runs.empty() || runs.back().end != k) {
      runs.push_back({static_cast<int32_t>(k), static_cast<int32_t>(k)});
    }
    ++runs.back().end;
  }
  return runs;
}

Layers layers_of(const KernelCase& c, int64_t q_begin, int64_t q_end,
                 int64_t k_begin, int64_t k_end, int64_t step, int64_t stride) {
  Layers out;
  bool full = true;
  size_t most = 0;
  for (int64_t q = q_begin; q < q_end; ++q) {
    const auto runs = legal_runs(c, q, k_begin, k_end);
    most = std::max(most, runs.size());
    full &=
        runs.size() == 1 && runs[0].begin == k_begin && runs[0].end == k_end;
  }
  out.any = most > 0;
  if (full || !out.any) return out;
  out.count = static_cast<int32_t>(most);
  // Bounds that no row needs are extreme, so that reading them shows.
  out.first.assign(most * index(stride), std::numeric_limits<int32_t>::min());
  out.last.assign(most * index(stride), std::numeric_limits<int32_t>::max());
  const int64_t rows = (q_end - q_begin + step - 1) / step * step;
  for (int64_t r = 0; r < std::min(rows, stride); ++r) {
    const auto runs =
        legal_runs(c, std::min(q_begin + r, q_end - 1), k_begin, k_end);
    for (size_t i = 0; i < most; ++i) {
      const LegalRun run = i < runs.size()
                               ? runs[i]
                               : LegalRun{static_cast<int32_t>(k_begin),
                                          static_cast<int32_t>(k_begin)};
      const size_t at = i * index(stride) + index(r);
      out.first[at] = run.begin - static_cast<int32_t>(k_begin);
      out.last[at] = run.end - static_cast<int32_t>(k_begin);
    }
  }
  return out;
}

Floats::Floats(int64_t n) : size_(index(n)) {
  memory_.assign(size_ + kBehind + 16, std::numeric_limits<float>::quiet_NaN());
  begin_ = memory_.data();
  while (reinterpret_cast<uintptr_t>(begin_) % 64 != 0) ++begin_;
}

bool Floats::intact() const {
  return std::all_of(begin_ + size_, begin_ + size_ + kBehind,
                     [](float x) { return std::isnan(x); });
}

}  // namespace tessera::testing
