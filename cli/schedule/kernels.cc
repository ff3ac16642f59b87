// cli/schedule/kernels.cc: reads dumps, or makes them by compiling.
#include "cli/schedule/kernels.h"

#include <utility>

#include "base/fail.h"
#include "cli/given_flags.h"
#include "lanes/lane.h"
#include "lanes/mosaic/region_trips.h"
#include "schedule/compile_dump.h"

namespace tessera::cli {
namespace {

// Makes Tessera's own kernel for the request, with the setting for this batch
// if flags leave it open. Returns its dump and sets its trips for the plan.
Result<schedule::Dump> own_kernels(const ScheduleFlags& o,
                                   const request::Resolved& request,
                                   schedule::ScheduleOptions& options,
                                   std::optional<AskedKernel>& own) {
  auto known = OwnedBatch::copy(request.request, request.facts.view());
  if (!known) return known.error();
  auto made =
      make_asked_kernel(o.kernel, options.target, keys_per_query(*known));
  if (!made) return made.error();
  own = std::move(*made);
  if (o.dump && own->open) {
    return invalid("cli",
                   "a dump of our kernel must come with its --tile or "
                   "--tiles-per-pass, found both open");
  }
  Request at_tile = request.request;
  at_tile.tile = own->kernel.tile;
  auto batch = OwnedBatch::copy(std::move(at_tile), request.facts.view());
  if (!batch) return batch.error();
  auto trips = mosaic::region_trips(*batch, own->kernel);
  if (!trips) return trips.error();
  options.known = std::move(*trips);
  const Plan& plan = batch->plan();
  options.heads = own->shape.heads * plan.batch;
  const int64_t tiles = static_cast<int64_t>(plan.forward.entries.size()) *
                        (own->shape.heads / plan.heads);
  own->legal_pairs = lanes::legal_pairs(plan, own->shape.heads);
  own->work = paid_work(own->kernel.tile, own->kernel.lowering.granule, tiles);
  if (o.dump) return schedule::read_dump(*o.dump);
  return schedule::compile_text_for_dump(
      own->kernel.program_text,
      {"", options.target, o.plugin.value_or(""), o.keep.value_or("")});
}

}  // namespace

std::string first_kernel_flag(const ScheduleFlags& o) {
  KernelFlags others = o.kernel;
  others.run.request = {};
  others.run.heads.reset();
  return first_given_of(std::move(others), add_kernel_flags);
}

bool asks_own_kernel(const ScheduleFlags& o) {
  return !o.program && asks_for_kernel(o.kernel) &&
         (!o.dump || !first_kernel_flag(o).empty());
}

Result<schedule::Dump> read_kernels(const ScheduleFlags& o,
                                    const request::Resolved* request,
                                    schedule::ScheduleOptions& options,
                                    std::optional<AskedKernel>& own) {
  if (asks_own_kernel(o)) return own_kernels(o, *request, options, own);
  if (o.dump) return schedule::read_dump(*o.dump);
  return schedule::compile_for_dump(
      {*o.program, options.target, o.plugin.value_or(""), o.keep.value_or("")});
}

}  // namespace tessera::cli
