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
#include "cli/lowering.h"
#include "cli/plan/report.h"
#include "cli/progress.h"
#include "cli/run/kernel_tile.h"
#include "cli/run/options.h"
#include "cli/warm/requests.h"
#include "tessera/session.h"

namespace tessera::cli {
namespace {

struct Options {
  RunFlags run;
  std::optional<std::string> seeds;
  std::vector<std::string> specs;
  bool dlse = false;
  bool json = false;
};

Result<RunOptions> open_session(const Options& o) {
  RunFlags run = o.run;
  if (!run.lane) run.lane = "xla";
  if (*run.lane != "xla" && *run.lane != "mosaic") {
    return invalid("cli", "--lane must be xla or mosaic, found {}",
                   in_quotes(*run.lane));
  }
  auto options = read_run_options(run);
  if (!options) return options.error();
  if (options->lanes.xla.cache_folder.empty()) {
    return invalid("cli",
                   "what is warmed must be kept for other processes, found no "
                   "folder (--cache FOLDER)");
  }
  if (auto e = open_early(*options); !e) return e.error();
  return options;
}

// As `run` plans it: a tile that is open may be the kernel's to choose.
Result<Planned> plan_one(const RequestFlags& request, const RouteFlags& route,
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
  if (o.dlse && !o.run.backward) {
    return invalid("cli", "--dlse goes with --backward, found it alone");
  }
  auto requests = warm_requests(o.run.request, o.specs, o.seeds);
  if (!requests) return requests.error();
  auto options = open_session(o);
  if (!options) return options.error();
  AttentionCall call;
  call.shape = options->data.shape;
  call.dtype = options->data.dtype;
  call.sink_logits = options->sink_logits;
  call.backward = options->data.backward;
  call.dlse = o.dlse;
  std::optional<std::string> kernel_target;
  if (options->lanes.lane == LaneId::mosaic) {
    kernel_target = target_here(*options->session);
  }
  WarmList list;
  for (const RequestFlags& request : *requests) {
    auto planned = plan_one(request, o.run.route, call, kernel_target);
    if (!planned) return planned.error();
    auto added = add_call(list, planned->batch, call);
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
  const std::string& folder = options->lanes.xla.cache_folder;
  if (o.json) {
    const nlohmann::json json = {{"batches", told->batches},
                                 {"contracts", told->contracts},
                                 {"compiles", told->compiles},
                                 {"disk_hits", told->disk_hits},
                                 {"memory_hits", told->memory_hits},
                                 {"ms", told->ms},
                                 {"cache", folder}};
    fmt::print("{}\n", json_line(json));
    return kOk;
  }
  fmt::print(
      "{:<11} {} batches, {} distinct contracts\n"
      "{:<11} {} programs in {:.0f} ms, {} found on disk\n"
      "{:<11} {}\n",
      "planned", told->batches, told->contracts, "compiled", told->compiles,
      told->ms, told->disk_hits, "kept in", on_a_line(folder));
  return kOk;
}

constexpr const char* kFooter =
    "Examples:\n"
    "  tessera warm --mask 'causal & documents' --q-len 8192 \\\n"
    "      --docs lognormal:mean=1500 --seeds 200 --backward\n"
    "  tessera warm --specs short.json --specs long.json --max-compiles 8\n"
    "\n"
    "Give the arrays as the run will: heads, dims, dtype, --backward, --dlse.\n"
    "\n"
    "JSON fields: batches, contracts, compiles, disk_hits, memory_hits, ms, "
    "cache.";

}  // namespace

Command warm_command() {
  auto o = std::make_shared<Options>();
  Command command{"warm", "Compile every program of a run before it begins"};
  add_shape_flags(command, o->run, "f32, bf16 or f16 [f32]");
  add_flags(
      command,
      {
          {"--seeds", &o->seeds, "N",
           "With --docs lognormal: as many batches, of seeds 0 to N - 1 [one]"},
          {"--specs", &o->specs, "FILE",
           "A request as a JSON file; may be given more than once"},
          {"--dlse", &o->dlse, "",
           "Backward takes the log-sum-exp's gradient, as `tessera run` does"},
          {"--lane", &o->run.lane, "NAME", "xla or mosaic [xla]"},
      });
  add_plugin_flags(
      command, o->run, kOptionsGroup,
      "A PJRT plugin's file or known name [xla_cpu_pjrt; of mosaic libtpu]",
      "Keeps what is compiled [TESSERA_CACHE, or the user's cache folder]");
  add_flags(
      command,
      {
          {"--method", &o->run.method, "NAME",
           "Of the xla lane: worklist, chunked or dense [worklist]"},
          {"--max-compiles", &o->run.max_compiles, "N",
           "0 is no limit: one more is an error that says what varied [0]"},
          {"--lowering-reason", &o->run.lowering_reason, "TEXT",
           kLoweringReasonHelp},
          {"--json", &o->json, "", "One JSON object on stdout"},
      });
  command.footer = kFooter;
  command.work = [o] { return run(*o); };
  return command;
}

}  // namespace tessera::cli
