// lanes/mosaic/call.cc: writes the custom call with the program's types.
#include "lanes/mosaic/call.h"

#include <vector>

#include "lanes/mosaic/program.h"
#include "lanes/mosaic/vector_memory.h"

namespace tessera::mosaic {

xla::Type type_of(const Argument& array) {
  switch (array.type.element) {
    case Element::bf16:
      return {xla::Element::bf16, array.type.shape};
    case Element::f32:
      return {xla::Element::f32, array.type.shape};
    default:
      return {xla::Element::i32, array.type.shape};
  }
}

xla::Writer::Values call_kernel(xla::Writer& w, const PlannedKernel& kernel,
                                std::string_view label,
                                const xla::Writer::Values& inputs) {
  const CallArrays arrays = operands_of(kernel);
  auto turned = [&](xla::Writer::Values values,
                    const std::vector<Argument>& of) {
    for (size_t i = 0; i < of.size(); ++i) {
      if (of[i].tokens_last) values[i] = w.transpose(values[i], {0, 1, 3, 2});
    }
    return values;
  };
  std::vector<xla::Type> results;
  for (const Argument& a : arrays.results) results.push_back(type_of(a));
  const auto made =
      w.call(kCallTarget, label, turned(inputs, arrays.inputs),
             call_attributes(name_of(kernel), arrays, text_of(kernel),
                             vector_rooms(kernel.shape.core_bytes).program),
             results);
  return turned(made, arrays.results);
}

}  // namespace tessera::mosaic
