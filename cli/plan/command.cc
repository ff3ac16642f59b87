// cli/plan/command.cc: `tessera plan`.
#include "cli/command.h"

#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <utility>

#include "base/fail.h"
#include "base/files.h"
#include "base/text.h"
#include "cli/json_line.h"
#include "cli/plan/report.h"
#include "cli/request/file_checks.h"
#include "cli/request/flags.h"
#include "cli/route/flags.h"
#include "cli/route/routed_batch.h"
#include "cli/trace_flag.h"
#include "cli/warnings.h"

namespace tessera::cli {
namespace {

struct Options {
  request::RequestFlags request;
  request::RouteFlags route;
  std::optional<std::string> out, trace;
  bool json = false;
  bool lists = false;
};

Result<void> check(const Options& o) {
  if (o.lists && !o.json) {
    return invalid("cli", "--lists goes with --json, found it alone");
  }
  return check_files(request_files(o.request), given_files({&o.out, &o.trace}));
}

Result<int> show(const Options& o, request::Loaded loaded) {
  if (loaded.saved) {
    // A loaded batch was verified, not planned. A routed one was planned before
    // the trace began, and its counts are those of the router's tiles. Both are
    // planned here, so that planning is timed and traced and the report is on
    // the picks that attention uses.
    auto batch =
        OwnedBatch::copy(loaded.resolved.request, loaded.saved->facts());
    if (!batch) return batch.error();
    loaded.saved = std::move(*batch);
  }
  auto planned = make_planned(std::move(loaded));
  if (!planned) return planned.error();
  auto report = make_report(std::move(*planned));
  if (!report) return report.error();
  print_warnings(report->warnings);
  if (o.out) {
    auto saved = save_plan(*o.out, report->planned.batch);
    if (!saved) return saved.error();
  }
  if (o.json) {
    fmt::print("{}\n", json_line(report_json(*report, o.lists)));
  } else {
    fmt::print("{}", report_text(*report));
    if (o.out) fmt::print("{:<11} {}\n", "saved", on_a_line(*o.out));
  }
  return kOk;
}

Result<int> run(const Options& o) {
  if (auto e = check(o); !e) return e.error();
  auto loaded = load_request(o.request, {}, o.route);
  if (!loaded) return loaded.error();
  if (auto e = take_picks(o.route, *loaded); !e) return e.error();
  return traced(o.trace, !o.json,
                [&]() -> Result<int> { return show(o, std::move(*loaded)); });
}

constexpr const char* kFooter =
    "Examples:\n"
    "  tessera plan --mask 'causal & documents' --q-len 32768 --docs "
    "lognormal\n"
    "  tessera plan --mask 'causal & window(1023, 0) & documents' \\\n"
    "      --q-len 8192 --docs lengths:3000,120,4000 --tile 128x128 --json\n"
    "  tessera plan --mask causal --q-len 1 --kv-len 65536 --valid "
    "tokens:40000\n"
    "  tessera plan --mask 'causal & routed(top=8, block=256)' --q-len 32768 "
    "\\\n"
    "      --picks clustered --max-union 12";

}  // namespace

Command plan_command() {
  auto o = std::make_shared<Options>();
  Command command{"plan", "Plan a batch: tiles, worklists, contract, digest"};
  add_request_flags(command, o->request);
  add_route_flags(command, o->route);
  add_flags(command,
            {
                {"-o,--out", &o->out, "FILE", "Save the plan here"},
                {"--trace", &o->trace, "FILE", kTraceHelp},
                {"--json", &o->json, "", "One JSON object on stdout"},
                {"--lists", &o->lists, "", "With --json: the worklists too"},
            });
  command.footer = kFooter;
  command.json_fields = report_json_fields();
  command.work = [o] { return run(*o); };
  return command;
}

}  // namespace tessera::cli
