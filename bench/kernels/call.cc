// bench/kernels/call.cc: the arrays of one call.
#include <algorithm>
#include <utility>

#include "bench/kernels/kernels.h"
#include "request/random_inputs.h"
#include "tessera/session.h"

namespace tessera::bench {
namespace {

Result<void> run_forward(KernelCall& call) {
  SessionOptions options;
  options.lane = LaneId::cpu;
  options.cpu.threads = 1;
  RunCall whole = call.data.over(*call.batch);
  whole.gradients.reset();
  auto ran = run_attention(whole, options);
  if (!ran) return ran.error();
  return {};
}

}  // namespace

double KernelCall::pairs() const {
  const int64_t of_head = batch->plan().legal_pairs[0];
  return static_cast<double>(data.shape.heads) * static_cast<double>(of_head);
}

Result<KernelCall> make_kernel_call(const KernelSize& size, Dtype dtype,
                                    bool backward) {
  auto mask = parse_mask(size.mask);
  if (!mask) return mask.error();
  Request request;
  request.masks = {std::move(*mask)};
  request.q_len = size.queries;
  request.kv_len = size.keys;
  auto batch = OwnedBatch::make(std::move(request), {});
  if (!batch) return batch.error();
  KernelCall call;
  call.batch = std::move(*batch);
  call.causal = size.mask == "causal";
  request::AttentionData& data = call.data;
  data.q_len = size.queries;
  data.kv_len = size.keys;
  data.shape.heads = size.heads;
  data.shape.kv_heads = 1;
  data.shape.head_dim = data.shape.v_head_dim = size.dim;
  data.dtype = dtype;
  data.backward = backward;
  data.allocate();
  request::fill_inputs(data, 0);
  if (backward) {
    if (auto e = run_forward(call); !e) return e.error();
  }
  return call;
}

std::vector<int32_t> last_keys(const KernelCall& call, int64_t q, int64_t rows,
                               int64_t begin, int64_t keys) {
  const request::AttentionData& d = call.data;
  std::vector<int32_t> last;
  if (!call.causal) return last;
  bool all = true;
  for (int64_t r = q; r < q + rows; ++r) {
    const int64_t seen =
        std::min(r, d.q_len - 1) + d.kv_len - d.q_len + 1 - begin;
    last.push_back(static_cast<int32_t>(std::clamp<int64_t>(seen, 0, keys)));
    all &= last.back() == keys;
  }
  if (all) last.clear();
  return last;
}

}  // namespace tessera::bench
