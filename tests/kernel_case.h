// tests/kernel_case.h: small attention calls for one kernel at a time: any
// legal pairs, handed over as the kernels take them, and judged by fp64.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "tests/attention_case.h"

namespace tessera::testing {

// One batch row whose heads share K, V and the legal pairs. These are its picks
// of single keys, so that the reference knows them without any kernel's bounds.
struct KernelCase {
  AttentionCase attention;
  std::vector<uint8_t> legal;  // [q_len, kv_len]

  int64_t q_len() const { return attention.plan.q_len; }
  int64_t kv_len() const { return attention.plan.kv_len; }
  int64_t pairs() const;  // legal ones
  bool is_legal(int64_t q, int64_t k) const {
    return legal[static_cast<size_t>(q * kv_len() + k)] != 0;
  }
  bool has_key(int64_t q) const;
  // Does any of queries [begin, end) attend to it?
  bool is_live(int64_t k, int64_t begin, int64_t end) const;
};

// Sizes of a case; the rest is drawn.
struct KernelSizes {
  int64_t q_len = 1;
  int64_t kv_len = 1;
  int64_t heads = 1;
  int64_t head_dim = 8;
  int64_t v_head_dim = 8;
};
// Masks with and without gaps, queries without a key and keys without a query
// among them. Every dtype, layout, scale and cap comes up.
KernelCase kernel_case(const KernelSizes& sizes, uint64_t seed);

// A size at, just below or just above a multiple of lanes or of a tile, at most
// `most`.
int64_t edge_size(std::mt19937_64& random, int64_t most);

// Legal keys [begin, end) of a query.
struct LegalRun {
  int32_t begin = 0;
  int32_t end = 0;
};
std::vector<LegalRun> legal_runs(const KernelCase& c, int64_t q, int64_t begin,
                                 int64_t end);

// Legal pairs of some queries with some keys as kernels take them: layer i has
// the bounds of each query's i-th run, counted from the first key. No layer
// where every pair is legal.
struct Layers {
  int32_t count = 0;
  bool any = false;                  // is there a legal pair?
  std::vector<int32_t> first, last;  // [count, stride]
};
// Rows up to a multiple of `step` repeat the last query.
Layers layers_of(const KernelCase& c, int64_t q_begin, int64_t q_end,
                 int64_t k_begin, int64_t k_end, int64_t step, int64_t stride);

// NaNs, 64-byte aligned, and behind them a few that nobody may touch.
class Floats {
 public:
  explicit Floats(int64_t n);
  float* data() { return begin_; }
  bool intact() const;  // the ones behind

 private:
  static constexpr size_t kBehind = 16;
  std::vector<float> memory_;
  float* begin_ = nullptr;
  size_t size_ = 0;
};

// What a kernel wrote for a case of this ISA: nothing, or what is wrong.
template <class Variant, class Run>
std::optional<std::string> each_variant(std::span<const Variant> all,
                                        Dtype dtype, Run&& run) {
  const std::vector<Isa> here = machine_isas();
  for (const Variant& v : all) {
    if (v.bf16_only && dtype != Dtype::bf16) continue;
    if (std::find(here.begin(), here.end(), v.isa) == here.end()) continue;
    if (std::optional<std::string> fault = run(v)) {
      return std::string(to_string(v.isa)) + ": " + *fault;
    }
  }
  return {};
}

}  // namespace tessera::testing
