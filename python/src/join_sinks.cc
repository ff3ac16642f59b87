#include "join_sinks.h"

#include <nanobind/stl/string.h>

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
  const auto lse_of_keys = floats_of(sums);
  const auto logits = floats_of(sinks);
  take(unlocked([&] { return join_sinks(read, lse_of_keys, logits, write); }));
  return nb::borrow<nb::any>(to);
}

}  // namespace

void bind_join_sinks(nb::module_& m) {
  m.def("join_sinks", &join, nb::arg("out"), nb::arg("lse"),
        nb::arg("sink_logits"), nb::kw_only(), nb::arg("layout") = "bhsd",
        nb::arg("joined") = nb::none(),
        "out / (1 + exp(sink - lse)): sink logits that take their share of the "
        "softmax and stay out of the log-sum-exp, as index-sparse kernels on "
        "GPUs have them. `out` and `lse` are those of `attention` without "
        "`sink_logits`.\n\n"
        "lse is float32 [batch, heads, q_len] and sink_logits float32 [heads]. "
        "It is computed in float64 and rounded once to the dtype of `out`; a "
        "query without a legal key stays 0. `joined` is written where it is "
        "given, and may be `out` itself; else it is a new array.");
}

}  // namespace tessera::python
