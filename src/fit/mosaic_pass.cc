// fit/mosaic_pass.cc: the programs around our TPU kernels. All that a kernel
// works in lies in vector memory. It takes arrays row by row, and of a head dim
// that is not whole lanes the compiler lays a program's own arrays out another
// way: then copies of them are its scratch.
#include "base/integers.h"
#include "fit/parts.h"
#include "lanes/lane.h"
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
constexpr int64_t kCounters[] = {int64_t{1} << 20, int64_t{2} << 20};

std::vector<MemoryPart> copies_of(const std::vector<MemoryPart>& arrays,
                                  const std::vector<mosaic::Type>& types) {
  std::vector<MemoryPart> out;
  for (size_t i = 0; i < arrays.size(); ++i) {
    const mosaic::Type& type = types[i];
    // Tensors have tokens before the last; rows of the log-sum-exp have not.
    if (type.shape.size() != 4 || type.shape[2] == 1) continue;
    int64_t bytes = byte_width(dtype_of(type.element)) *
                    round_up(type.shape.back(), mosaic::kLanes);
    for (size_t d = 0; d + 1 < type.shape.size(); ++d) {
      bytes *= type.shape[d];
    }
    if (bytes == arrays[i].bytes) continue;
    const int64_t plain = arrays[i].bytes - arrays[i].padding;
    out.push_back({"copy of " + arrays[i].name, MemoryKind::scratch, bytes,
                   bytes - plain, bytes});
  }
  return out;
}

}  // namespace

Result<mosaic::PlannedKernel> planned_kernel(const FitCall& asked,
                                             bool backward) {
  const AttentionCall call = lanes::one_direction(asked.call, backward);
  const std::string target(asked.chip);
  MosaicOptions options = asked.mosaic;
  if (!backward) options.query_chunk = 0;
  if (asked.open_passes) {
    options = mosaic::fit_passes(asked.request, asked.present, call, target,
                                 asked.mosaic.lowering_reason)
                  .setting.options;
  }
  return mosaic::plan_kernel(asked.request, asked.present, call, target,
                             options);
}

Result<PassMemory> mosaic_pass(const FitCall& asked, const Chip& chip,
                               bool backward) {
  auto planned = planned_kernel(asked, backward);
  if (!planned) return planned.error();
  mosaic::CallArrays all = mosaic::arrays_of(*planned);
  const auto inputs = std::ssize(all.inputs);
  all.inputs.insert(all.inputs.end(), all.results.begin(), all.results.end());
  std::vector<MemoryPart> arrays;
  std::vector<mosaic::Type> types;
  for (const mosaic::Argument& a : all.inputs) {
    auto part = part_of(a.name, kind_of(a.name), dtype_of(a.type.element),
                        a.type.shape);
    if (!part) return part.error();
    arrays.push_back(std::move(*part));
    types.push_back(a.type);
  }
  PassMemory out;
  out.backward = backward;
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
  const auto copies = copies_of(arrays, types);
  out.scratch.insert(out.scratch.end(), copies.begin(), copies.end());
  if (!out.scratch.empty()) {
    out.scratch.push_back(
        {"counters", MemoryKind::scratch, kCounters[backward]});
  }
  return out;
}

}  // namespace tessera::fit
