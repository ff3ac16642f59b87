// lanes/host_residents.cc: dense copies, and the lane's passes over them.
#include "lanes/host_residents.h"

#include <cstring>
#include <vector>

namespace tessera::lanes {
namespace {

struct HostArray : Resident {
  std::vector<uint8_t> bytes;
  MutableTensorView view;

  HostArray(Dtype dtype, int64_t batch, int64_t heads, int64_t tokens,
            int64_t dim)
      : bytes(static_cast<size_t>(batch * heads * tokens * dim *
                                  byte_width(dtype))),
        view(MutableTensorView::bhsd(bytes.data(), dtype, batch, heads, tokens,
                                     dim)) {}
};

const MutableTensorView& view_of(const Resident& array) {
  return static_cast<const HostArray&>(array).view;
}
TensorView input(const Resident& array) { return as_input(view_of(array)); }

void copy(const TensorView& from, const MutableTensorView& to) {
  const int64_t width = byte_width(from.dtype);
  const auto* const source = static_cast<const uint8_t*>(from.data);
  auto* const target = static_cast<uint8_t*>(to.data);
  for (int64_t b = 0; b < from.batch; ++b) {
    for (int64_t h = 0; h < from.heads; ++h) {
      for (int64_t t = 0; t < from.tokens; ++t) {
        const int64_t here = b * from.batch_stride + h * from.head_stride +
                             t * from.token_stride;
        const int64_t there =
            b * to.batch_stride + h * to.head_stride + t * to.token_stride;
        std::memcpy(target + there * width, source + here * width,
                    static_cast<size_t>(from.dim * width));
      }
    }
  }
}

template <class Pass>
ForwardTensors tensors_of(const Pass& pass, const Resident& out,
                          std::span<float> lse) {
  ForwardTensors t;
  t.q = input(*pass.q);
  t.k = input(*pass.k);
  t.v = input(*pass.v);
  t.sink_logits = pass.sink_logits;
  t.out = view_of(out);
  t.lse = lse;
  return t;
}

}  // namespace

Result<ResidentPtr> HostResidents::put(const TensorView& t, bool) {
  auto out =
      std::make_shared<HostArray>(t.dtype, t.batch, t.heads, t.tokens, t.dim);
  copy(t, out->view);
  return ResidentPtr(std::move(out));
}

Result<void> HostResidents::fetch(const Resident& array, bool,
                                  const MutableTensorView& to) const {
  copy(input(array), to);
  return {};
}

Result<PassRun> HostResidents::forward(ResidentForward& pass,
                                       const StopFlag* stop) {
  const AttentionShape& s = call_.shape;
  pass.out = std::make_shared<HostArray>(call_.dtype, plan_.batch, s.heads,
                                         plan_.q_len, s.v_head_dim);
  return work_.forward(tensors_of(pass, *pass.out, pass.lse), stop);
}

Result<PassRun> HostResidents::backward(ResidentBackward& pass,
                                        const StopFlag* stop) {
  const AttentionShape& s = call_.shape;
  const auto keys = [&](int64_t dim) {
    return std::make_shared<HostArray>(call_.dtype, plan_.batch, s.kv_heads,
                                       plan_.kv_len, dim);
  };
  pass.dq = std::make_shared<HostArray>(call_.dtype, plan_.batch, s.heads,
                                        plan_.q_len, s.head_dim);
  pass.dk = keys(s.head_dim);
  pass.dv = keys(s.v_head_dim);
  Gradients g;
  g.dout = input(*pass.dout);
  g.dlse = pass.dlse;
  g.dq = view_of(*pass.dq);
  g.dk = view_of(*pass.dk);
  g.dv = view_of(*pass.dv);
  g.dsink_logits = pass.dsink_logits;
  // The backward pass only reads lse.
  const std::span<float> lse(const_cast<float*>(pass.lse.data()),
                             pass.lse.size());
  return work_.backward(tensors_of(pass, *pass.out, lse), g, stop);
}

}  // namespace tessera::lanes
