// cli/warm/command.cc: `tessera warm`: compiles every program of a run before
// it.
#include "cli/command.h"

#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/fail.h"
#include "base/text.h"
#include "base/threads.h"
#include "cli/progress.h"
#include "cli/route/planned.h"
#include "cli/route/routed_batch.h"
#include "cli/run/cache_report.h"
#include "cli/run/options.h"
#include "cli/run/run.h"
#include "cli/warm/flags.h"
#include "cli/warm/requests.h"
#include "run/kernel_tile.h"
#include "run/passes.h"
#include "tessera/session.h"

namespace tessera::cli {
namespace {

struct Options {
  WarmFlags warm;
  bool json = false;
};

Result<RunOptions> open_session(RunFlags run) {
  if (!run.lane) run.lane = "xla";
  if (*run.lane != "xla" && *run.lane != "mosaic" && *run.lane != "auto") {
    return invalid("cli", "--lane must be xla, mosaic or auto, found {}",
                   in_quotes(*run.lane));
  }
  auto options = read_run_options(run);
  if (!options) return options.error();
  if (auto e = check_cache_folder(options->lanes.xla.cache_folder); !e) {
    return e.error();
  }
  if (auto e = open_early(*options); !e) return e.error();
  return options;
}

// A batch, and the choice of the rules if no lane was named.
struct Ready {
  request::Planned planned;
  std::optional<Choice> choice;
};

// Plans and chooses as `tessera run` does: the kernel's settings may determine
// an open tile, and flags that the chosen lane does not accept are refused.
Result<Ready> plan_one(const RunFlags& flags, const RunOptions& o,
                       const AttentionCall& call,
                       const request::RequestFlags& request) {
  auto loaded = load_request(request, {}, flags.route);
  if (!loaded) return loaded.error();
  const bool open_tile = run::is_tile_open(*loaded);
  if (o.lanes.lane == LaneId::mosaic) {
    auto e = run::take_kernel_tile(call, run::target_here(*o.session),
                                   o.lanes.xla, *loaded);
    if (!e) return e.error();
  }
  if (auto e = take_picks(flags.route, *loaded); !e) return e.error();
  auto planned = plan_loaded(std::move(*loaded));
  if (!planned) return planned.error();
  auto counted = run::check_first_keys(o.data.first_keys, planned->batch,
                                       call.shape.heads);
  if (!counted) return counted.error();
  if (o.lanes.lane) return Ready{std::move(*planned), {}};
  auto tiled = run::choose_and_tile(run::chooser_of(*o.session, call), call,
                                    open_tile, planned->batch);
  if (!tiled) return tiled.error();
  if (auto e = check_choice(flags, tiled->choice, o.lanes); !e) {
    return e.error();
  }
  return Ready{std::move(*planned), std::move(tiled->choice)};
}

Result<int> run(const Options& o) {
  const WarmFlags& f = o.warm;
  if (f.dlse && !f.run.backward) {
    return invalid("cli", "--dlse goes with --backward, found it alone");
  }
  auto requests = warm_requests(f.run.request, f.specs, f.seeds);
  if (!requests) return requests.error();
  auto options = open_session(f.run);
  if (!options) return options.error();
  AttentionCall call = call_of(*options);
  call.dlse = f.dlse;
  WarmList list;
  for (const request::RequestFlags& request : *requests) {
    auto ready = plan_one(f.run, *options, call, request);
    if (!ready) return ready.error();
    auto added = add_call(list, *options->session, ready->planned.batch, call,
                          std::move(ready->choice));
    if (!added) return added.error();
  }
  WarmOptions warm;
  warm.threads = machine_threads();
  Progress progress("warm");
  warm.progress = progress.counter();
  auto told = options->session->warm(list, warm);
  if (!told) return told.error();
  return print_cache_report(
      {*told, told->ms, options->lanes.xla.cache_folder, told->warnings},
      o.json, {{"batches", told->batches}, {"contracts", told->contracts}},
      fmt::format("{:<11} {} batches, {} distinct contracts\n", "planned",
                  told->batches, told->contracts));
}

constexpr const char* kFooter =
    "Examples:\n"
    "  tessera warm --mask 'causal & documents' --q-len 8192 \\\n"
    "      --docs lognormal:mean=1500 --seeds 200 --backward\n"
    "  tessera warm --specs short.json --specs long.json --max-compiles 8\n"
    "  tessera warm --mask causal --q-len 32768 --mesh seq=4 --balance tasks\n"
    "\n"
    "Give the arrays as the run will: heads, dims, dtype, --backward, --dlse,\n"
    "--sink-telemetry; and --mesh with --balance, --exchange, --work, "
    "--evenness.\n"
    "\n"
    "Exit code: 1 where the cache had trouble, as a disk that is full: what "
    "is\n"
    "warned of may not be kept.";

constexpr JsonField kJsonFields[] = {
    {"batches, contracts", "contracts: the distinct ones of these batches"},
    {kCacheFields},
};

}  // namespace

Command warm_command() {
  auto o = std::make_shared<Options>();
  Command command{"warm", "Compile every program of a run before it begins"};
  add_warm_flags(command, o->warm);
  add_flags(command, {{"--json", &o->json, "", "One JSON object on stdout"}});
  command.footer = kFooter;
  command.json_fields = kJsonFields;
  command.work = [o] { return run(*o); };
  return command;
}

}  // namespace tessera::cli
