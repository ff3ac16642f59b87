// bench/kernels/kernels.h: single kernels on tiles in the caches, for
// `tessera-bench kernels`. Each operation has a file.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "request/attention_data.h"
#include "tessera/batch.h"
#include "tessera/machine.h"

namespace tessera::bench {

// The size of a call. All heads share one K and V.
struct KernelSize {
  std::string_view mask;  // full or causal
  int64_t queries = 0, keys = 0, heads = 1, dim = 0;
};

// A call on one batch row of random numbers.
struct KernelCall {
  std::optional<OwnedBatch> batch;
  request::AttentionData data;
  bool causal = false;

  double pairs() const;  // legal pairs of all heads
};
// With `backward`, the arrays have the results of a forward pass.
Result<KernelCall> make_kernel_call(const KernelSize& size, Dtype dtype,
                                    bool backward);

// The number of keys, among `keys` keys from `begin`, that each of the queries
// [q, q + rows) sees: the kernels' layer. Rows beyond the last query repeat its
// number. Empty if each query sees all keys.
std::vector<int32_t> last_keys(const KernelCall& call, int64_t q, int64_t rows,
                               int64_t begin, int64_t keys);

// A kernel variant that this machine can run, bound to one call.
struct KernelVariant {
  Isa isa = Isa::portable;
  bool bf16_pairs = false;    // multiplies pairs by dot products
  std::function<void()> run;  // runs the whole call on this thread
};

struct KernelOperation {
  std::string_view name;  // that of the kernels' folder
  bool backward = false;
  double products = 0;  // dot products of length dim for each pair
  std::span<const KernelSize> sizes;
  // `call` must outlive the variants.
  std::vector<KernelVariant> (*variants)(KernelCall& call) = nullptr;
};

const KernelOperation& forward_operation();
const KernelOperation& backward_operation();
const KernelOperation& decode_operation();

// The variants of `all` that this machine has and that take the call's dtype.
template <class Variant, class Make>
std::vector<KernelVariant> kernel_variants(std::span<const Variant> all,
                                           const KernelCall& call, Make make) {
  const std::vector<Isa> here = machine_isas();
  std::vector<KernelVariant> out;
  for (const Variant& v : all) {
    if (v.bf16_only && call.data.dtype != Dtype::bf16) continue;
    for (const Isa isa : here) {
      if (isa == v.isa) out.push_back({isa, v.bf16_only, make(v)});
    }
  }
  return out;
}

}  // namespace tessera::bench
