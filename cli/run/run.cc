// cli/run/run.cc: runs a request as flags say.
#include "cli/run/run.h"

#include <utility>

#include "base/fail.h"
#include "base/text.h"
#include "base/trace.h"
#include "cli/progress.h"
#include "cli/route/planned.h"
#include "cli/route/routed_batch.h"
#include "cli/run/arrays.h"
#include "cli/run/receipt.h"
#include "run/judge_run.h"
#include "run/kernel_tile.h"
#include "run/passes.h"
#include "run/session_state.h"

namespace tessera::cli {
namespace {

// Loads the request. If inputs are from a file, it has their lengths.
Result<request::Loaded> load_for(const RunFlags& flags, const RunOptions& o) {
  request::Lengths lengths;
  if (o.inputs) {
    lengths = {o.inputs->batch, o.inputs->q_len, o.inputs->kv_len};
  }
  auto loaded = load_request(flags.request, lengths, flags.route);
  if (!loaded || !o.inputs) return loaded;
  auto e = check_lengths(*o.inputs, loaded->resolved.request);
  if (!e) return e.error();
  return loaded;
}

// Routes before planning. The router needs q and k unless the source has all
// picks; then all arrays are made here, and `made` is set.
Result<void> route_first(const RunFlags& flags, RunOptions& o,
                         request::Loaded& loaded, bool& made) {
  const request::PickSource& source = *loaded.source;
  const AttentionShape& shape = o.data.shape;
  RouteInputs arrays;
  auto bytes = routing_bytes(flags.route, source, loaded.resolved,
                             {shape.heads, shape.kv_heads, shape.head_dim},
                             o.lanes.cpu.threads);
  if (!bytes) return bytes.error();
  made = !source.complete();
  if (made) {
    auto e = check_memory(flags, o, o.lanes.lane.value_or(LaneId::cpu), *bytes);
    if (!e) return e;
    make_inputs(o);
    arrays.q = std::as_const(o.data.q).view();
    arrays.k = std::as_const(o.data.k).view();
  }
  RouteOptions route;
  route.threads = o.lanes.cpu.threads;
  route.isa = o.lanes.cpu.isa;
  auto routed =
      route_batch(flags.route, source, arrays, route, loaded.resolved);
  if (!routed) return routed.error();
  loaded.saved = std::move(*routed);
  return {};
}

Result<request::Planned> plan_request(request::Loaded loaded,
                                      const RunOptions& o) {
  auto planned = plan_loaded(std::move(loaded));
  if (planned && o.data.shape.heads % planned->batch.plan().heads != 0) {
    return invalid("cli",
                   "--heads must be a multiple of the plan's, found {} "
                   "for {}",
                   o.data.shape.heads, planned->batch.plan().heads);
  }
  return planned;
}

// A planned request, the chosen lane, and what chose the tile.
struct Ready {
  request::Planned planned;
  Choice choice;
  run::TileBy tile_by;
};

// If the request leaves the tile open and Tessera's TPU kernels will run it,
// the tile is that of their table of settings.
Result<Ready> plan_and_choose(const RunOptions& o, const AttentionCall& call,
                              request::Loaded loaded) {
  const bool may_tile = !o.lanes.lane && run::is_tile_open(loaded);
  run::TileBy tile_by;
  if (o.lanes.lane == LaneId::mosaic) {
    auto by = run::take_kernel_tile(call, run::target_here(*o.session),
                                    o.lanes.xla, loaded);
    if (!by) return by.error();
    tile_by = std::move(*by);
  }
  auto planned = plan_request(std::move(loaded), o);
  if (!planned) return planned.error();
  auto counted = run::check_first_keys(o.data.first_keys, planned->batch,
                                       call.shape.heads);
  if (!counted) return counted.error();
  auto tiled = run::choose_and_tile(run::chooser_of(*o.session, call), call,
                                    may_tile, planned->batch);
  if (!tiled) return tiled.error();
  if (may_tile) tile_by = std::move(tiled->tile_by);
  return Ready{std::move(*planned), std::move(tiled->choice),
               std::move(tile_by)};
}

struct Ran {
  receipt::Receipt receipt;
  RequestFeatures features;
  bool flushes = false;
};

Result<Ran> run_passes(const RunFlags& flags, RunOptions& o,
                       const request::Planned& planned) {
  Progress progress("running");
  *o.progress = progress.callback();
  const RunCall call = o.data.over(planned.batch);
  auto passes = run::run_passes(*o.session, call);
  if (!passes) return passes.error();
  *o.progress = {};
  const TraceSpan span("run", "digest");
  auto receipt = run::receipt_of(*passes, call);
  if (!receipt) return receipt.error();
  add_given(flags, o, planned, *receipt);
  if (passes->sinks) {
    o.data.sink_mass = std::move(passes->sinks->mass);
    o.data.sink_entropy = std::move(passes->sinks->entropy);
  }
  const Prepared::State& state = passes->ready.state();
  return Ran{std::move(*receipt), state.features, state.flushes};
}

}  // namespace

AttentionCall call_of(const RunOptions& o) {
  AttentionCall out = o.data.call();
  out.sink_logits = o.sink_logits || (o.inputs && o.inputs->has("sink_logits"));
  out.dlse = o.data.backward && !o.inputs;
  return out;
}

Result<RunOutcome> run_request(const RunFlags& flags) {
  auto options = read_run_options(flags);
  if (!options) return options.error();
  return run_request(flags, std::move(*options));
}

Result<RunOutcome> run_request(const RunFlags& flags, RunOptions o) {
  if (auto e = open_early(o); !e) return e.error();
  request::AttentionData& data = o.data;
  auto loaded = load_for(flags, o);
  if (!loaded) return loaded.error();
  data.batch = loaded->resolved.request.batch;
  data.q_len = loaded->resolved.request.q_len;
  data.kv_len = loaded->resolved.request.kv_len;
  bool made = false;
  if (loaded->source) {
    if (auto e = route_first(flags, o, *loaded, made); !e) return e.error();
  }
  const AttentionCall call = call_of(o);
  auto ready = plan_and_choose(o, call, std::move(*loaded));
  if (!ready) return ready.error();
  const auto& [planned, choice, tile_by] = *ready;
  const Batch& batch = planned.batch;
  if (auto e = check_choice(flags, choice, o.lanes); !e) return e.error();
  if (auto e = check_memory(flags, o, choice.lane, 0, &batch); !e) {
    return e.error();
  }
  if (!made) make_inputs(o);
  auto ran = run_passes(flags, o, planned);
  if (!ran) return ran.error();
  receipt::Receipt& receipt = ran->receipt;
  if (flags.request.plan) receipt.plan_ms = 0;
  if (!tile_by.empty() && !receipt.settings.empty()) {
    receipt.settings["tile"] = tile_by;
  }
  if (flags.check) {
    Progress progress("checking");
    auto check = run::judge_run(
        data.over(batch),
        {.seed = o.seed,
         .flushes = ran->flushes,
         .rounded_sum = receipt.row_sum == to_string(RowSum::rounded),
         .progress = progress.callback()});
    if (!check) return check.error();
    receipt.check = std::move(*check);
  }
  return RunOutcome{std::move(receipt), ran->features, plan_facts(batch.plan()),
                    std::move(data)};
}

}  // namespace tessera::cli
