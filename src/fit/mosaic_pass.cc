// fit/mosaic_pass.cc: the programs around our TPU kernels. All that a kernel
// works in lies in vector memory, so they have no scratch in HBM.
#include "fit/parts.h"
#include "lanes/mosaic/backward.h"
#include "lanes/mosaic/forward.h"
#include "lanes/mosaic/kernel.h"

namespace tessera::fit {
namespace {

Dtype dtype_of(mosaic::Element element) {
  switch (element) {
    case mosaic::Element::bf16:
      return Dtype::bf16;
    case mosaic::Element::f32:
      return Dtype::f32;
    default:
      return Dtype::i32;
  }
}

}  // namespace

Result<PassMemory> mosaic_pass(const FitCall& asked, const Chip& chip,
                               bool backward) {
  AttentionCall call = asked.call;
  call.backward = backward;
  call.dlse = backward && asked.call.dlse;
  auto planned = mosaic::plan_kernel(asked.request, asked.present, call,
                                     std::string(chip.name), asked.mosaic);
  if (!planned) return planned.error();
  const mosaic::KernelShape& shape = planned->shape;
  std::vector<MemoryPart> arrays;
  for (const mosaic::Argument& a : backward
                                       ? mosaic::backward_arguments(shape)
                                       : mosaic::forward_arguments(shape)) {
    if (a.type.space != mosaic::Space::smem &&
        a.type.space != mosaic::Space::any) {
      continue;
    }
    auto part = part_of(a.name, kind_of(a.name), dtype_of(a.type.element),
                        a.type.shape);
    if (!part) return part.error();
    arrays.push_back(std::move(*part));
  }
  PassMemory out;
  out.backward = backward;
  const auto outputs = arrays.end() - (backward ? mosaic::kBackwardOutputs
                                                : mosaic::kForwardOutputs);
  out.arguments.assign(arrays.begin(), outputs);
  out.outputs.assign(outputs, arrays.end());
  out.outputs.push_back(table_of(chip, out.outputs.size()));
  return out;
}

}  // namespace tessera::fit
