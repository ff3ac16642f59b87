// fit/mosaic_pass.cc: the programs around our TPU kernels. All that a kernel
// works in lies in vector memory, and it takes arrays as the compiler lays a
// program's own out, so that none is copied.
#include "fit/parts.h"
#include "lanes/mosaic/kernel.h"
#include "lanes/mosaic/settings.h"

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

// What scratch counts with, 16 KiB an array: the most that was seen, and more.
constexpr int64_t kCounters = int64_t{2} << 20;

}  // namespace

Result<mosaic::PlannedKernel> planned_kernel(const FitCall& asked,
                                             const AttentionCall& one) {
  const std::string target(asked.chip);
  const mosaic::KernelTerms terms = {
      asked.mosaic.lowering_reason, asked.mosaic.numbers, asked.mosaic.row_sum};
  MosaicOptions options = asked.mosaic;
  if (!one.backward) options.query_chunk = 0;
  // Sink telemetry has passes of its own in a session too.
  if (asked.open_passes || one.sink_telemetry) {
    options =
        mosaic::fit_passes(asked.request, asked.present, one, target, terms)
            .setting.options;
  }
  return mosaic::plan_kernel(asked.request, asked.present, one, target,
                             options);
}

Result<PassMemory> mosaic_pass(const FitCall& asked, const Chip& chip,
                               const AttentionCall& one) {
  auto planned = planned_kernel(asked, one);
  if (!planned) return planned.error();
  mosaic::CallArrays all = mosaic::arrays_of(*planned);
  const auto inputs = std::ssize(all.inputs);
  all.inputs.insert(all.inputs.end(), all.results.begin(), all.results.end());
  std::vector<MemoryPart> arrays;
  for (const mosaic::Argument& a : all.inputs) {
    auto part = part_of(a.name, kind_of(a.name), dtype_of(a.type.element),
                        a.type.shape);
    if (!part) return part.error();
    part->residual &= !one.sink_telemetry;  // these are the forward pass's
    arrays.push_back(std::move(*part));
  }
  PassMemory out;
  out.backward = one.backward;
  out.vector_memory = vector_memory(planned->kernel);
  const auto outputs = arrays.begin() + inputs;
  out.arguments.assign(arrays.begin(), outputs);
  // Sums that the kernel keeps nobody is given.
  for (auto at = outputs; at != arrays.end(); ++at) {
    if (!mosaic::is_kept(at->name)) {
      out.outputs.push_back(*at);
      continue;
    }
    at->kind = MemoryKind::scratch;
    out.scratch.push_back(*at);
  }
  out.outputs.push_back(table_of(chip, out.outputs.size()));
  if (!out.scratch.empty()) {
    out.scratch.push_back({"counters", MemoryKind::scratch, kCounters});
  }
  return out;
}

}  // namespace tessera::fit
