// cli/fit/mesh.cc: the budget of a batch on a mesh.
#include "cli/fit/mesh.h"

#include <utility>

#include "base/fail.h"
#include "cli/route/planned.h"
#include "cli/run/options.h"

namespace tessera::cli {
namespace {

// Refuses flags that a mesh's program does not have: its method and kernel
// settings are fixed.
Result<void> check_flags(const FitFlags& o) {
  const auto of_kernel = first_given(kernel_settings(o.kernel));
  if (!of_kernel.empty()) {
    return invalid("cli",
                   "--tiles-per-pass, --fetch-ahead, --keys-per-query, "
                   "--page-steps, --query-chunk, --row-sum and "
                   "--sink-telemetry go without --mesh, found {} with it",
                   of_kernel);
  }
  if (o.method && *o.method != "worklist") {
    return invalid("cli", "--method must be worklist with --mesh, found {}",
                   *o.method);
  }
  if (!o.compile) return {};
  return invalid("cli",
                 "--compile goes without --mesh, whose program `tessera shard "
                 "--compile` compiles, found both");
}

}  // namespace

Result<FitReport> fit_on_mesh(const MeshFitCall& asked) {
  auto budget = make_budget(asked);
  if (!budget) return budget.error();
  FitReport out;
  out.lane = asked.lane;
  out.tile = asked.batch->plan().tile;
  out.budget = std::move(*budget);
  if (!out.budget.fits()) out.remedies = what_fits(asked);
  return out;
}

Result<FitReport> fit_on_mesh(const FitFlags& o, LaneId lane,
                              const SessionOptions& spread) {
  if (auto e = check_flags(o); !e) return e.error();
  RunFlags run = o.kernel.run;
  if (!run.dtype) run.dtype = "bf16";
  RunOptions sizes;
  if (auto e = read_shape(run, sizes); !e) return e.error();
  auto numbers = read_numbers(run.numbers);
  if (!numbers) return numbers.error();
  MeshFitCall asked;
  // The target may name several chips (v5e:2x2), which a plan does not accept.
  asked.chip = std::exchange(run.request.target, {}).value_or("v6e");
  auto planned = load_planned(run.request);
  if (!planned) return planned.error();
  asked.batch = &planned->batch;
  asked.mesh = spread.mesh;
  asked.options = spread.shards;
  asked.call = {sizes.data.shape, sizes.data.dtype, run.sink_logits,
                run.backward, o.kernel.dlse};
  asked.lane = lane;
  asked.lowering_reason = run.lowering_reason;
  asked.numbers = *numbers;
  return fit_on_mesh(asked);
}

}  // namespace tessera::cli
