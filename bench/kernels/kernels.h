// bench/kernels/kernels.h: single kernels on tiles that lie in the caches: what
// `tessera-bench kernels` measures. Each operation has a file.
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

// Heads share K and V.
struct KernelSize {
  std::string_view mask;  // full or causal
  int64_t queries = 0, keys = 0, heads = 1, dim = 0;
};

// One batch row of random numbers and what they must give.
struct KernelCall {
  std::optional<OwnedBatch> batch;
  request::AttentionData data;
  bool causal = false;

  double pairs() const;  // legal ones, of all heads
};
// With what a forward pass leaves, where `backward`.
Result<KernelCall> make_kernel_call(const KernelSize& size, Dtype dtype,
                                    bool backward);

// How far queries [q, q + rows) see among `keys` keys from `begin` on: a layer
// of the kernels, `rows` numbers of which the last real one repeats. Empty
// where each sees all of them.
std::vector<int32_t> last_keys(const KernelCall& call, int64_t q, int64_t rows,
                               int64_t begin, int64_t keys);

// A variant that this machine has, on one call.
struct KernelVariant {
  Isa isa = Isa::portable;
  bool bf16_pairs = false;    // multiplies pairs by dot products
  std::function<void()> run;  // all of the call, on this thread
};

struct KernelOperation {
  std::string_view name;  // the folder's
  bool backward = false;
  double products = 0;  // of a head's dim, two operations a number and pair
  std::span<const KernelSize> sizes;
  // `call` must outlive what runs it.
  std::vector<KernelVariant> (*variants)(KernelCall& call) = nullptr;
};

const KernelOperation& forward_operation();
const KernelOperation& backward_operation();
const KernelOperation& decode_operation();

// Those of `all` that take the call's dtype.
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
