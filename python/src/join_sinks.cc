#include "join_sinks.h"

#include <nanobind/stl/string.h>

#include <optional>
#include <span>
#include <string>

#include "arrays.h"
#include "failure.h"
#include "tessera/attention.h"
#include "unlocked.h"

namespace tessera::python {
namespace {

nb::any join(nb::handle out, nb::handle lse, nb::handle sink_logits,
             const std::string& layout, nb::handle joined) {
  const Layout order = parse_layout(layout);
  const Array from = read_array("out", out);
  const Array sums = read_array("lse", lse);
  const Array sinks = read_array("sink_logits", sink_logits);
  const nb::object to = joined.is_none() ? empty_array(from.shape(), from.dtype)
                                         : nb::borrow(joined);
  const Array written = read_array("joined", to, true);
  const TensorView read = input_of(from, order);
  const MutableTensorView write = tensor_of(written, order);
  const int64_t heads[] = {read.heads};
  const auto lse_of_keys = floats_of(sums, lse_shape(read));
  const auto logits = floats_of(sinks, heads);
  take(unlocked([&] { return join_sinks(read, lse_of_keys, logits, write); }));
  return nb::borrow<nb::any>(to);
}

nb::tuple gradients_of(nb::handle joined, nb::handle lse,
                       nb::handle sink_logits, nb::handle dout, nb::handle dlse,
                       const std::string& layout) {
  const Layout order = parse_layout(layout);
  const Array given = read_array("joined", joined);
  const Array sums = read_array("lse", lse);
  const Array sinks = read_array("sink_logits", sink_logits);
  const Array by_joined = read_array("dout", dout);
  std::optional<Array> by_lse;
  if (!dlse.is_none()) by_lse = read_array("dlse", dlse);
  const nb::object to_out = empty_array(by_joined.shape(), by_joined.dtype);
  const nb::object to_lse = empty_array(sums.shape(), Dtype::f32);
  const nb::object to_sinks = empty_array(sinks.shape(), Dtype::f32);
  const Array made_out = read_array("dout", to_out, true);
  const Array made_lse = read_array("dlse", to_lse, true);
  const Array made_sinks = read_array("dsink_logits", to_sinks, true);
  const TensorView read = input_of(given, order);
  const TensorView by_out = input_of(by_joined, order);
  const auto of_lse = lse_shape(read);
  const int64_t heads[] = {read.heads};
  const auto lse_of_keys = floats_of(sums, of_lse);
  const auto logits = floats_of(sinks, heads);
  const auto by_sums = by_lse ? floats_of(*by_lse, of_lse) : std::span<float>();
  const SinkGradients to = {tensor_of(made_out, order),
                            floats_of(made_lse, of_lse),
                            floats_of(made_sinks, heads)};
  take(unlocked([&] {
    return sink_gradients(read, lse_of_keys, logits, by_out, by_sums, to);
  }));
  return nb::make_tuple(to_out, to_lse, to_sinks);
}

}  // namespace

void bind_join_sinks(nb::module_& m) {
  m.def("join_sinks", &join, nb::arg("out"), nb::arg("lse"),
        nb::arg("sink_logits"), nb::kw_only(), nb::arg("layout") = "bhsd",
        nb::arg("joined") = nb::none(),
        "Joins sink logits to attention that ran without them: returns\n"
        "out / (1 + exp(sink - lse)).\n\n"
        "The sink logits take their share of the softmax but stay out of\n"
        "the log-sum-exp, as in index-sparse kernels on GPUs. `out` and\n"
        "`lse` are those of `attention` without `sink_logits`; `lse` is\n"
        "float32 [batch, heads, q_len] and `sink_logits` float32 [heads].\n\n"
        "The result is computed in float64 and rounded once to the dtype\n"
        "of `out`. The output of a query without a legal key stays 0. The\n"
        "result is written to `joined` if it is given, else to a new\n"
        "array. `joined` must be `out` itself or lie wholly before or\n"
        "after it in memory.");
  m.def("sink_gradients", &gradients_of, nb::arg("joined"), nb::arg("lse"),
        nb::arg("sink_logits"), nb::arg("dout"), nb::arg("dlse") = nb::none(),
        nb::kw_only(), nb::arg("layout") = "bhsd",
        "The backward pass of `join_sinks`. Returns (dout, dlse,\n"
        "dsink_logits) as new arrays; the first two are for the backward\n"
        "pass of attention without `sink_logits`, which must have been\n"
        "prepared with `dlse`.\n\n"
        "`joined` is what `join_sinks` returned. `dout` is the gradient\n"
        "of `joined`. `dlse` is the gradient of the log-sum-exp of the\n"
        "keys, float32 [batch, heads, q_len]; None if no gradient reaches\n"
        "it. The results are computed in float64 and rounded once. A\n"
        "query without a legal key gets a `dout` of 0, whatever was\n"
        "given.");
}

}  // namespace tessera::python
