// cli/warm/command.cc: `tessera warm`: every program of a run, compiled before
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
#include "cli/run/kernel_tile.h"
#include "cli/run/options.h"
#include "cli/warm/flags.h"
#include "cli/warm/requests.h"
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

// What the rules choose, where they do: it has no use for flags of other lanes.
Result<std::optional<Choice>> chosen_by_rule(const RunFlags& flags,
                                             const RunOptions& o,
                                             const Batch& batch,
                                             const AttentionCall& call) {
  if (o.lanes.lane) return std::optional<Choice>();
  auto choice = o.session->choose(batch, call);
  if (!choice) return choice.error();
  if (auto e = check_choice(flags, *choice, o.lanes); !e) return e.error();
  return std::optional<Choice>(std::move(*choice));
}

// As `run` plans it: a tile that is open may be the kernel's to choose.
Result<request::Planned> plan_one(
    const request::RequestFlags& request, const request::RouteFlags& route,
    const AttentionCall& call,
    const std::optional<std::string>& kernel_target) {
  auto loaded = load_request(request, {}, route);
  if (!loaded) return loaded.error();
  if (kernel_target) {
    auto e = take_kernel_tile(call, *kernel_target, *loaded);
    if (!e) return e.error();
  }
  if (auto e = take_picks(route, *loaded); !e) return e.error();
  return plan_loaded(std::move(*loaded));
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
  AttentionCall call;
  call.shape = options->data.shape;
  call.dtype = options->data.dtype;
  call.sink_logits = options->sink_logits;
  call.backward = options->data.backward;
  call.dlse = f.dlse;
  const int64_t first_keys = options->data.first_keys;
  call.sink_telemetry = first_keys != 0;
  std::optional<std::string> kernel_target;
  if (options->lanes.lane == LaneId::mosaic) {
    kernel_target = target_here(*options->session);
  }
  WarmList list;
  for (const request::RequestFlags& request : *requests) {
    auto planned = plan_one(request, f.run.route, call, kernel_target);
    if (!planned) return planned.error();
    auto counted =
        run::check_first_keys(first_keys, planned->batch, call.shape.heads);
    if (!counted) return counted.error();
    auto chosen = chosen_by_rule(f.run, *options, planned->batch, call);
    if (!chosen) return chosen.error();
    auto added = add_call(list, *options->session, planned->batch, call,
                          std::move(*chosen));
    if (!added) return added.error();
  }
  WarmOptions warm;
  warm.threads = machine_threads();
  Progress progress("warm");
  if (const auto show = progress.callback()) {
    warm.progress = [show](int64_t done, int64_t contracts) {
      show(static_cast<double>(done) / static_cast<double>(contracts));
    };
  }
  auto told = warm_all(*options->session, list, warm);
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
    {"batches, contracts", "contracts: of them, those that are distinct"},
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
