// bench/recompile/kernels.cc: writes the TPU kernels of each batch and compiles
// them ahead of time, without a device.
#include "bench/recompile/kernels.h"

#include <utility>

#include "base/digest.h"
#include "base/timed.h"
#include "cli/progress.h"
#include "lanes/mosaic/kernel_steps.h"
#include "lanes/mosaic/settings.h"
#include "pjrt/compile.h"
#include "pjrt/plugin.h"
#include "tessera/mosaic.h"

namespace tessera::bench {

using cli::Progress;

namespace {

Result<pjrt::Topology> find_topology(const RecompileSettings& s) {
  if (auto e = pjrt::check_available(); !e) return e.error();
  auto plugin = pjrt::open_plugin({s.xla.plugin, {}});
  if (!plugin) return plugin.error();
  return pjrt::make_topology(**plugin, s.target);
}

// Makes the kernel as lane mosaic does.
Result<MosaicKernel> write_kernel(const RecompileSettings& s,
                                  const RaggedBatch& b, bool backward) {
  AttentionCall call;
  call.shape = s.shape;
  call.dtype = s.dtype;
  call.backward = backward;
  const mosaic::ChosenSetting chosen =
      mosaic::fit_passes(b.request, b.facts(), call, s.target,
                         {.numbers = s.xla.numbers, .row_sum = s.xla.row_sum});
  return make_mosaic_kernel(b.request, b.facts(), call, s.target,
                            chosen.setting.options);
}

Result<void> add_kernel(const RecompileSettings& s, const KernelTarget& target,
                        const RaggedBatch& b, const Batch& batch, bool backward,
                        KernelTotals& t) {
  auto kernel = timed(t.write_ms, [&] { return write_kernel(s, b, backward); });
  if (!kernel) return kernel.error();
  auto arrays =
      timed(t.arrays_ms, [&] { return make_mosaic_arrays(batch, *kernel); });
  if (!arrays) return arrays.error();
  t.steps += mosaic::steps_in(*kernel, arrays->range);
  t.shapes.insert(kernel->plan.key);
  t.contracts.insert(kernel->contract.key);
  const bool met =
      !t.programs
           .insert({kernel->contract.key, digest_of(kernel->program_text)})
           .second;
  if (met || !target.topology) return {};
  auto made = timed(t.compile_ms, [&] {
    return pjrt::compile(*target.topology, kernel->program_text);
  });
  if (!made) return made.error();
  ++t.compiles;
  return {};
}

}  // namespace

Result<KernelTarget> open_target(const RecompileSettings& s,
                                 bool must_compile) {
  auto topology = find_topology(s);
  if (topology) return KernelTarget{std::move(*topology), ""};
  if (must_compile || topology.error().kind != ErrorKind::unavailable) {
    return topology.error();
  }
  return KernelTarget{{}, topology.error().message};
}

Result<KernelTotals> compile_kernels(const RecompileSettings& s,
                                     const KernelTarget& target,
                                     const std::vector<RaggedBatch>& batches) {
  KernelTotals t;
  Progress progress("batches");
  for (const RaggedBatch& b : batches) {
    progress.show(static_cast<double>(t.batches++) /
                  static_cast<double>(s.batches));
    auto batch = BorrowedBatch::make(b.request, b.facts());
    if (!batch) return batch.error();
    t.plan_ms += batch->plan_ms();
    for (const int64_t n : batch->plan().legal_pairs) t.legal_pairs += n;
    for (const bool backward : {false, true}) {
      auto e = add_kernel(s, target, b, *batch, backward, t);
      if (!e) return e.error();
    }
  }
  return t;
}

}  // namespace tessera::bench
