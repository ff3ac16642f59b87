// tests/stablehlo_shards.cc: writes kernels as StableHLO, call by call.
#include "tests/stablehlo_shards.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>

#include "tests/stablehlo_kernel.h"

namespace tessera::testing {
namespace {

// Writes the kernel's computation on the arrays that are bound to its names.
xla::Writer::Values results_of(xla::Writer& w,
                               const mosaic::PlannedKernel& kernel,
                               const mosaic::CallArrays& arrays,
                               const xla::Writer::Values& inputs) {
  StablehloKernel attention(w, kernel.kernel, kernel.shape.has_low,
                            kernel.shape.wide_sums);
  if (!kernel.shape.in_parts) return attention.results();
  const auto before_of = [&](const char* result) -> std::optional<xla::Value> {
    const std::string name = mosaic::before(result);
    const auto at =
        std::ranges::find(arrays.inputs, name, &mosaic::Argument::name);
    if (at == arrays.inputs.end()) return {};
    return inputs[static_cast<size_t>(at - arrays.inputs.begin())];
  };
  if (!kernel.kernel.call.backward) {
    return attention.forward_parts(
        {before_of("out"), before_of("lse"), before_of("so_far")});
  }
  const StablehloKernel::Parts made =
      attention.parts({before_of("dq"), before_of("dk"), before_of("dv"),
                       before_of("dq_so_far")});
  xla::Writer::Values out = {made.dq, made.dk, made.dv};
  if (kernel.kernel.call.sink_logits) out.push_back(made.dsink_logits);
  out.push_back(made.dq_so_far);
  return out;
}

// Splits dK and dV, which follow dQ, into arrays with so many keys each.
xla::Writer::Values in_parts(xla::Writer& w, const std::vector<int64_t>& parts,
                             xla::Writer::Values made) {
  if (parts.empty()) return made;
  xla::Writer::Values out = {made[0]};
  for (const size_t array : {1, 2}) {
    int64_t first = 0;
    for (const int64_t keys : parts) {
      out.push_back(w.part(made[array], 2, first, first + keys));
      first += keys;
    }
  }
  out.insert(out.end(), made.begin() + 3, made.end());
  return out;
}

// Writes the computation of a call whose inputs have the kernel's sizes.
xla::Writer::Values attend(xla::Writer& w, const mosaic::PlannedKernel& kernel,
                           const xla::Writer::Values& inputs) {
  const mosaic::CallArrays arrays = arrays_of(kernel);
  EXPECT_EQ(inputs.size(), arrays.inputs.size());
  std::map<std::string, xla::Value> around;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string& name = arrays.inputs[i].name;
    EXPECT_EQ(inputs[i].dims(), arrays.inputs[i].type.shape);
    if (w.has_argument(name)) around.emplace(name, w.argument(name));
    w.bind(name, inputs[i]);
  }
  const std::vector<int64_t>& parts = kernel.shape.key_parts;
  for (const std::string name : {"k", "v"}) {
    xla::Writer::Values all;
    for (size_t i = 0; i < parts.size(); ++i) {
      all.push_back(w.argument(mosaic::key_part(name, i)));
    }
    if (!all.empty()) w.bind(name, w.join(all, 2));
  }
  xla::Writer::Values made = results_of(w, kernel, arrays, inputs);
  if (kernel.kernel.call.backward) made = in_parts(w, parts, std::move(made));
  for (const auto& [name, value] : around) w.bind(name, value);
  return made;
}

}  // namespace

xla::Writer::Values stablehlo_call(xla::Writer& w,
                                   const mosaic::PlannedKernel& kernel,
                                   std::string_view,
                                   const xla::Writer::Values& inputs) {
  const mosaic::CallArrays arrays = arrays_of(kernel);
  for (size_t i = 0; i < inputs.size(); ++i) {
    EXPECT_EQ(inputs[i].type, mosaic::type_of(arrays.inputs[i]));
  }
  return attend(w, kernel, inputs);
}

xla::Writer::Values stablehlo_call_of_any(xla::Writer& w,
                                          const mosaic::PlannedKernel& kernel,
                                          std::string_view,
                                          const xla::Writer::Values& inputs) {
  return attend(w, kernel, inputs);
}

}  // namespace tessera::testing
