// tests/kernel_case.h: small attention calls for one kernel at a time: any
// legal pairs, in the form that kernels take, checked against fp64.
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

// One batch row whose heads share K, V and the legal pairs. The pairs are picks
// of single keys, so that the reference needs none of the kernels' bounds.
struct KernelCase {
  AttentionCase attention;
  std::vector<uint8_t> legal;  // [q_len, kv_len]

  int64_t q_len() const { return attention.plan.q_len; }
  int64_t kv_len() const { return attention.plan.kv_len; }
  int64_t pairs() const;  // number of legal pairs
  bool is_legal(int64_t q, int64_t k) const {
    return legal[static_cast<size_t>(q * kv_len() + k)] != 0;
  }
  bool has_key(int64_t q) const;
  // Whether any of queries [begin, end) attends to key k.
  bool is_live(int64_t k, int64_t begin, int64_t end) const;
};

// Sizes of a case; all else is random.
struct KernelSizes {
  int64_t q_len = 1;
  int64_t kv_len = 1;
  int64_t heads = 1;
  int64_t head_dim = 8;
  int64_t v_head_dim = 8;
};
// A random case. Masks are with and without gaps; some queries have no key and
// some keys no query. Every dtype, layout, scale and cap occurs.
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

// Legal pairs of some queries with some keys in the form that kernels take:
// layer i has the bounds of each query's i-th run, relative to the first key.
// If every pair is legal there is no layer.
struct Layers {
  int32_t count = 0;
  bool any = false;                  // is there a legal pair?
  std::vector<int32_t> first, last;  // [count, stride]
};
// Rows are padded to a multiple of `step` by repeating the last query.
Layers layers_of(const KernelCase& c, int64_t q_begin, int64_t q_end,
                 int64_t k_begin, int64_t k_end, int64_t step, int64_t stride);

// 64-byte aligned floats, all NaN, followed by a few that no kernel may write.
class Floats {
 public:
  explicit Floats(int64_t n);
  float* data() { return begin_; }
  bool intact() const;  // whether the floats behind the end are unchanged

 private:
  static constexpr size_t kBehind = 16;
  std::vector<float> memory_;
  float* begin_ = nullptr;
  size_t size_ = 0;
};

// Runs each variant that this machine has and that takes the dtype. Returns the
// first fault, with the name of its ISA.
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
