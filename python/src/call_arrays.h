// call_arrays.h: the arrays of one call, kept alive together with their views.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <string>

#include "arrays.h"
#include "tessera/attention.h"

namespace tessera::python {

namespace nb = nanobind;

struct ForwardArrays {
  Array q, k, v;
  std::optional<Array> sink_logits;
  nb::object out, lse;  // lse: null if the caller does not want it
  Layout layout = Layout::bhsd;
  ForwardTensors views;
  AttentionShape shape;
};
// If `out` is None, a new array is made.
ForwardArrays read_forward(nb::handle q, nb::handle k, nb::handle v,
                           nb::handle sink_logits, const std::string& layout,
                           std::optional<double> scale, double softcap,
                           nb::handle out, bool with_lse);
AttentionCall call_of(const ForwardArrays& f);

struct GradientArrays {
  Array dout;
  std::optional<Array> dlse;
  nb::object dq, dk, dv, dsink_logits;
  Gradients views;
};
GradientArrays read_gradients(const ForwardArrays& f, nb::handle dout,
                              nb::handle dlse);

}  // namespace tessera::python
