// fit/mosaic_pass.cc: the memory of programs around our TPU kernels. A kernel
// works in vector memory and takes arrays in the layout that the compiler gives
// to the program's arguments and results, so no array is copied.
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

// Counters beside scratch, 16 KiB each: more than the most that was seen.
constexpr int64_t kCounters = int64_t{2} << 20;

}  // namespace

Result<mosaic::PlannedKernel> planned_kernel(const FitCall& asked,
                                             const AttentionCall& one) {
  const std::string target(asked.chip);
  const mosaic::KernelTerms terms = {
      asked.mosaic.lowering_reason, asked.mosaic.numbers, asked.mosaic.row_sum};
  MosaicOptions options = asked.mosaic;
  if (!one.backward) options.query_chunk = 0;
  // As in a session, sink telemetry has its own tiles a pass.
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
    part->residual &= !one.sink_telemetry;  // the forward pass counts them
    arrays.push_back(std::move(*part));
  }
  PassMemory out;
  out.backward = one.backward;
  out.vector_memory = vector_memory(planned->kernel);
  const auto outputs = arrays.begin() + inputs;
  out.arguments.assign(arrays.begin(), outputs);
  // Sums that the kernel keeps for itself are scratch, not outputs.
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
