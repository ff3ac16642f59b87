// lanes/mosaic/call.cc: the custom call, with types of the program's own.
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
  const CallArrays arrays = arrays_of(kernel);
  std::vector<xla::Type> results;
  for (const Argument& a : arrays.results) results.push_back(type_of(a));
  return w.call(kCallTarget, label, inputs,
                call_attributes(name_of(kernel), arrays, text_of(kernel),
                                vector_rooms(kernel.shape.core_bytes).program),
                results);
}

}  // namespace tessera::mosaic
