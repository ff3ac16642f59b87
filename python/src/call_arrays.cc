#include "call_arrays.h"

#include <cstdint>
#include <vector>

namespace tessera::python {
namespace {

std::vector<int64_t> shape_in(Layout layout, const TensorView& like,
                              int64_t dim) {
  return layout == Layout::bhsd
             ? std::vector{like.batch, like.heads, like.tokens, dim}
             : std::vector{like.batch, like.tokens, like.heads, dim};
}

}  // namespace

ForwardArrays read_forward(nb::handle q, nb::handle k, nb::handle v,
                           nb::handle sink_logits, const std::string& layout,
                           std::optional<double> scale, double softcap,
                           nb::handle out, bool with_lse) {
  ForwardArrays f;
  f.layout = parse_layout(layout);
  f.q = read_array("q", q);
  f.k = read_array("k", k);
  f.v = read_array("v", v);
  f.views.q = input_of(f.q, f.layout);
  f.views.k = input_of(f.k, f.layout);
  f.views.v = input_of(f.v, f.layout);
  if (!sink_logits.is_none()) {
    f.sink_logits = read_array("sink_logits", sink_logits);
    const int64_t heads[] = {f.views.q.heads};
    f.views.sink_logits = floats_of(*f.sink_logits, heads);
  }
  f.shape.heads = f.views.q.heads;
  f.shape.kv_heads = f.views.k.heads;
  f.shape.head_dim = f.views.q.dim;
  f.shape.v_head_dim = f.views.v.dim;
  f.shape.scale = scale;
  f.shape.softcap = softcap;
  const TensorView& like = f.views.q;
  f.out =
      out.is_none()
          ? empty_array(shape_in(f.layout, like, f.shape.v_head_dim), f.q.dtype)
          : nb::borrow(out);
  f.views.out = tensor_of(read_array("out", f.out, true), f.layout);
  if (with_lse) {
    const auto sizes = lse_shape(like);
    f.lse = empty_array(sizes, Dtype::f32);
    f.views.lse = floats_of(read_array("lse", f.lse, true), sizes);
  }
  return f;
}

AttentionCall call_of(const ForwardArrays& f) {
  AttentionCall call;
  call.shape = f.shape;
  call.dtype = f.q.dtype;
  call.sink_logits = f.sink_logits.has_value();
  return call;
}

GradientArrays read_gradients(const ForwardArrays& f, nb::handle dout,
                              nb::handle dlse) {
  GradientArrays g;
  g.dout = read_array("dout", dout);
  g.views.dout = input_of(g.dout, f.layout);
  if (!dlse.is_none()) {
    g.dlse = read_array("dlse", dlse);
    g.views.dlse = floats_of(*g.dlse, lse_shape(f.views.q));
  }
  const auto like = [&](const TensorView& t, nb::object& kept) {
    kept = empty_array(shape_in(f.layout, t, t.dim), t.dtype);
    return tensor_of(read_array("gradient", kept, true), f.layout);
  };
  g.views.dq = like(f.views.q, g.dq);
  g.views.dk = like(f.views.k, g.dk);
  g.views.dv = like(f.views.v, g.dv);
  if (f.sink_logits) {
    const int64_t sizes[] = {f.shape.heads};
    g.dsink_logits = empty_array(sizes, Dtype::f32);
    g.views.dsink_logits =
        floats_of(read_array("dsink_logits", g.dsink_logits, true), sizes);
  }
  return g;
}

}  // namespace tessera::python
