// cli/schedule/command.cc: `tessera schedule`.
#include "cli/command.h"

#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "base/files.h"
#include "base/text.h"
#include "cli/numbers.h"
#include "cli/plan/report.h"
#include "cli/request/flags.h"
#include "cli/schedule/kernels.h"
#include "cli/schedule/report.h"
#include "picture/schedule.h"

namespace tessera::cli {
namespace {

constexpr int64_t kMaxTrips = int64_t{1} << 53;

// "REGION=N"; a region's name may hold an equals sign, a number does not.
Result<schedule::TripRule> parse_trips(const std::string& text) {
  const size_t equals = text.rfind('=');
  if (equals == std::string::npos || equals == 0) {
    return invalid("cli", "--trips must be REGION=N, found {}",
                   in_quotes(text));
  }
  auto n = parse_int(std::string_view(text).substr(equals + 1), "--trips", 0,
                     kMaxTrips);
  if (!n) return n.error();
  return schedule::TripRule{text.substr(0, equals), static_cast<double>(*n)};
}

Result<std::optional<Resolved>> asked_request(RequestFlags f) {
  f.target.reset();  // here it is what the program is compiled for
  const bool asked =
      f.plan || f.spec || !f.masks.empty() || f.q_len || f.kv_len || f.docs;
  if (!asked) return std::optional<Resolved>();
  auto loaded = load_request(f);
  if (!loaded) return loaded.error();
  if (auto e = take_picks({}, *loaded); !e) return e.error();
  if (loaded->saved) {
    loaded->resolved.facts = own_facts(loaded->saved->facts());
  }
  return std::optional<Resolved>(std::move(loaded->resolved));
}

// Which flags go together.
Result<void> check(const ScheduleFlags& o) {
  const bool own = asks_own_kernel(o);
  if (o.program ? o.dump.has_value() : !own && !o.dump) {
    return invalid("cli",
                   "schedule must be given a program, --dump or a request, "
                   "found {}",
                   o.program ? "a program and --dump" : "none");
  }
  if (o.dump && (o.keep || o.plugin)) {
    return invalid("cli", "{} goes with a program, found it with --dump",
                   o.keep ? "--keep" : "--plugin");
  }
  if (own || !has_kernel_flags(o)) return {};
  return invalid("cli",
                 "a program takes no flags of a kernel, found one "
                 "beside it");
}

Result<schedule::ScheduleAsk> read_ask(const ScheduleFlags& o) {
  const RunFlags& flags = o.kernel.run;
  schedule::ScheduleAsk ask;
  ask.target = flags.request.target.value_or("v6e:1x1");
  if (auto chip = schedule::find_chip(ask.target); !chip) return chip.error();
  for (const std::string& text : o.trips) {
    auto rule = parse_trips(text);
    if (!rule) return rule.error();
    ask.rules.push_back(std::move(*rule));
  }
  if (flags.heads) {
    auto heads = parse_int(*flags.heads, "--heads", 1, 1 << 20);
    if (!heads) return heads.error();
    ask.heads = *heads;
  }
  return ask;
}

Result<void> write_picture(const schedule::ScheduleReport& report,
                           const std::string& path) {
  std::vector<picture::Kernel> drawn;
  for (const schedule::KernelReport& k : report.kernels) {
    drawn.push_back({k.profile, k.prediction});
  }
  auto svg = picture::draw_schedule(drawn);
  if (!svg) return svg.error();
  return write_file(path, *svg);
}

Result<int> run(const ScheduleFlags& o) {
  if (auto e = check(o); !e) return e.error();
  auto ask = read_ask(o);
  if (!ask) return ask.error();
  auto request = asked_request(o.kernel.run.request);
  if (!request) return request.error();
  const Resolved* const asked = *request ? &**request : nullptr;
  if (asked) {
    ask->request = &asked->request;
    ask->facts = asked->facts.view();
  }
  if (o.picture) {
    if (auto e = check_output(*o.picture); !e) return e.error();
  }
  std::optional<AskedKernel> own;
  auto dump = read_kernels(o, asked, *ask, own);
  if (!dump) return dump.error();
  auto report = schedule::make_schedule(std::move(*dump), *ask);
  if (!report) return report.error();
  if (o.picture) {
    if (auto e = write_picture(*report, *o.picture); !e) return e.error();
  }
  const AskedKernel* const told = own ? &*own : nullptr;
  if (o.json) {
    fmt::print("{}\n", json_line(schedule_json(*report, told)));
  } else {
    fmt::print("{}", schedule_text(*report, told));
    if (o.picture) fmt::print("{:<11} {}\n", "picture", *o.picture);
  }
  return kOk;
}

constexpr const char* kFooter =
    "Examples:\n"
    "  tessera schedule program.mlir --target v6e:1x1\n"
    "  tessera schedule splash.mlir --mask causal --q-len 32768 \\\n"
    "      --picture splash.svg\n"
    "  tessera schedule --mask 'causal & documents' --q-len 32768 \\\n"
    "      --docs lengths:32768 --heads 8\n"
    "  tessera schedule --dump FOLDER --trips tiles=4096 --json\n"
    "\n"
    "Without a program or a dump, a request compiles and counts our own TPU "
    "kernel\nfor it. Beside one, a request (a plan or its flags) gives an "
    "attention kernel's trips and "
    "the\n"
    "tiles that its cycles are divided by. --trips says how often a region "
    "runs in\n"
    "the whole kernel, a loop's iterations; REGION is a name or a path as "
    "printed\n"
    "(loop0/if1), with KERNEL: before it where kernels share it.\n"
    "\n"
    "JSON fields: target, assumed.{gigahertz,hbm_bytes_per_cycle}, cycles (of "
    "all\n"
    "kernels, null where trips are unknown), attention_cycles, heads,\n"
    "cycles_per_head, exact_tiles_per_head, cycles_per_tile (a tile is 256 x "
    "256),\n"
    "own.{tile, tiles_per_pass, chosen_by} of our own kernel,\n"
    "kernels[].{name, opcode, bundles, grid (-1: at run time), cycles,\n"
    "unknown_trips, irregular_jumps, attention.{block_q, block_kv, heads,\n"
    "active_steps, full_steps, partial_steps, rows, grid_steps, dead_steps,\n"
    "dead_cycles}, regions}.\n"
    "regions[].{path, name, role, kind, source, begin, end, parent, depth, "
    "trips,\n"
    "trips_from, bundle_cycles, memory_cycles, own, whole}; own is of bundles "
    "in no\n"
    "region inside: {bundles, slots.NAME.{used,capacity,share}, bound, "
    "bound_slot,\n"
    "distance, fills, spills, dmas, hbm_bytes, dmas_of_unknown_size}.";

}  // namespace

Command schedule_command() {
  auto o = std::make_shared<ScheduleFlags>();
  Command command{"schedule",
                  "What a TPU program costs, from the vendor's own schedule"};
  add_flags(command,
            {
                {"program", &o->program, "FILE",
                 "A StableHLO module, as text or bytecode"},
                {"--dump", &o->dump, "FOLDER",
                 "Read libtpu's dumps there in place of compiling; needs no "
                 "plugin. With "
                 "flags of our kernel they are of it"},
                {"--keep", &o->keep, "FOLDER",
                 "Leave libtpu's dumps there: a new or empty folder"},
                {"--plugin", &o->plugin, "PLUGIN",
                 "The compiler: a path or a name [libtpu]"},
                {"--trips", &o->trips, "REGION=N",
                 "How often a region runs in the whole kernel. Repeatable"},
                {"--picture", &o->picture, "FILE",
                 "An SVG of slot use over the largest kernel's loop"},
                {"--json", &o->json, "", "One JSON object on stdout"},
            });
  add_kernel_flags(command, o->kernel);
  for (Flag& flag : command.flags) {
    if (flag.names != std::string_view("--target")) continue;
    flag.about = "Compile for this, and count its cycles [v6e:1x1]";
    flag.group = kOptionsGroup;
  }
  command.footer = kFooter;
  command.work = [o] { return run(*o); };
  return command;
}

}  // namespace tessera::cli
