// request/attention_data.cc: the arrays of one attention call.
#include "request/attention_data.h"

#include <cstring>
#include <limits>

namespace tessera::request {
std::string_view to_string(Layout layout) {
  return layout == Layout::bhsd ? "bhsd" : "bshd";
}

Array::Array(Dtype dtype, Layout layout, int64_t batch, int64_t heads,
             int64_t tokens, int64_t dim)
    : layout_(layout),
      bytes_(static_cast<size_t>(batch * heads * tokens * dim *
                                 byte_width(dtype))) {
  std::memset(bytes_.data(), 0xff, bytes_.view().size());
  view_ = layout == Layout::bhsd
              ? MutableTensorView::bhsd(bytes_.data(), dtype, batch, heads,
                                        tokens, dim)
              : MutableTensorView::bshd(bytes_.data(), dtype, batch, heads,
                                        tokens, dim);
}

TensorView Array::view() const {
  return {view_.data,         view_.dtype,       view_.batch,
          view_.heads,        view_.tokens,      view_.dim,
          view_.batch_stride, view_.head_stride, view_.token_stride};
}

std::vector<int64_t> Array::shape() const {
  if (layout_ == Layout::bhsd) {
    return {view_.batch, view_.heads, view_.tokens, view_.dim};
  }
  return {view_.batch, view_.tokens, view_.heads, view_.dim};
}

void Array::fill(std::string_view bytes) {
  std::memcpy(bytes_.data(), bytes.data(), bytes.size());
}

void AttentionData::allocate() {
  const AttentionShape& s = shape;
  const auto queries = [&](int64_t dim) {
    return Array(dtype, layout, batch, s.heads, q_len, dim);
  };
  const auto keys = [&](int64_t dim) {
    return Array(dtype, layout, batch, s.kv_heads, kv_len, dim);
  };
  q = queries(s.head_dim);
  k = keys(s.head_dim);
  v = keys(s.v_head_dim);
  out = queries(s.v_head_dim);
  lse.assign(static_cast<size_t>(batch * s.heads * q_len),
             std::numeric_limits<float>::quiet_NaN());
  if (!backward) return;
  dout = queries(s.v_head_dim);
  dq = queries(s.head_dim);
  dk = keys(s.head_dim);
  dv = keys(s.v_head_dim);
  if (sink_logits) {
    dsink_logits.assign(static_cast<size_t>(s.heads),
                        std::numeric_limits<float>::quiet_NaN());
  }
}

double AttentionData::scale() const { return shape.scale_or_default(); }

ForwardTensors AttentionData::forward_tensors() {
  const AttentionData& c = *this;
  ForwardTensors t;
  t.q = c.q.view(), t.k = c.k.view(), t.v = c.v.view();
  if (sink_logits) t.sink_logits = *sink_logits;
  t.out = out.view();
  t.lse = lse;
  return t;
}

Gradients AttentionData::gradients() {
  const AttentionData& c = *this;
  Gradients g;
  g.dout = c.dout.view(), g.dlse = dlse;
  g.dq = dq.view(), g.dk = dk.view(), g.dv = dv.view();
  g.dsink_logits = dsink_logits;
  return g;
}

AttentionCall AttentionData::call() const {
  return {.shape = shape,
          .dtype = dtype,
          .sink_logits = sink_logits.has_value(),
          .backward = backward,
          .dlse = backward && !dlse.empty(),
          .sink_telemetry = first_keys != 0};
}

RunCall AttentionData::over(const Batch& of) {
  RunCall whole = {of, shape, forward_tensors()};
  if (backward) whole.gradients = gradients();
  whole.first_keys = first_keys;
  return whole;
}

DataBytes data_bytes(const AttentionData& d) {
  const auto values = [&](int64_t heads, int64_t tokens, int64_t dim) {
    return static_cast<double>(d.batch) * static_cast<double>(heads) *
           static_cast<double>(tokens) * static_cast<double>(dim);
  };
  const AttentionShape& s = d.shape;
  const auto width = static_cast<double>(byte_width(d.dtype));
  const double q = values(s.heads, d.q_len, s.head_dim);
  const double kv = values(s.kv_heads, d.kv_len, s.head_dim + s.v_head_dim);
  const double out = values(s.heads, d.q_len, s.v_head_dim);
  const double lse = 4 * values(s.heads, d.q_len, 1);
  DataBytes bytes;
  bytes.outputs = width * out + lse;
  bytes.all = bytes.outputs + width * (q + kv);
  // Sink mass and entropy are outputs; `all` leaves them to the lane's count.
  if (d.first_keys != 0) bytes.outputs += 2 * lse;
  if (d.backward) {
    bytes.outputs += width * (q + kv);
    bytes.all += width * (q + kv + out) + lse;
  }
  return bytes;
}

}  // namespace tessera::request
