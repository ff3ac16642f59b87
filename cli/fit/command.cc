// cli/fit/command.cc: `tessera fit`: a call's memory on a chip, before launch.
#include "cli/command.h"

#include <fmt/format.h>

#include <memory>

#include "base/fail.h"
#include "base/text.h"
#include "cli/compile/kernel_flags.h"
#include "cli/compile/report.h"
#include "cli/fit/report.h"
#include "cli/lowering.h"
#include "cli/plan/report.h"

namespace tessera::cli {
namespace {

struct Options {
  KernelFlags kernel;
  std::optional<std::string> lane, plugin;
  bool compile = false;
  bool json = false;
};

Result<LaneId> lane_of(const Options& o) {
  const std::string name = o.lane.value_or("xla");
  for (const LaneId lane : {LaneId::xla, LaneId::mosaic}) {
    if (name == to_string(lane)) return lane;
  }
  return invalid("cli", "--lane must be xla or mosaic, found {}",
                 in_quotes(name));
}

Result<void> check_flags(const Options& o, LaneId lane) {
  const KernelFlags& k = o.kernel;
  if (lane == LaneId::xla &&
      (k.tiles_per_pass || k.fetch_ahead || k.keys_per_query || k.row_sum)) {
    return invalid("cli",
                   "--tiles-per-pass, --fetch-ahead, --keys-per-query and "
                   "--row-sum go with --lane mosaic, found one with xla");
  }
  if (auto e = check_reason_flag(k.run.lowering_reason); !e) return e;
  if (o.plugin && !o.compile) {
    return invalid("cli", "--plugin goes with --compile, found it alone");
  }
  return {};
}

Result<FitCall> read_asked(const Options& o, LaneId lane) {
  FitCall out;
  out.lane = lane;
  out.chip = o.kernel.run.request.target.value_or("v6e");
  if (lane == LaneId::mosaic) {
    auto asked = read_asked_call(o.kernel);
    if (!asked) return asked.error();
    out.request = std::move(asked->request);
    out.present = asked->present;
    out.call = asked->call;
    out.mosaic = asked->options;
    return out;
  }
  auto asked = load_asked(o.kernel.run.request);
  if (!asked) return asked.error();
  RunOptions sizes;
  RunFlags run = o.kernel.run;
  if (!run.dtype) run.dtype = "bf16";
  if (auto e = read_shape(run, sizes); !e) return e.error();
  out.request = std::move(asked->request);
  out.present = asked->present;
  out.call = {sizes.data.shape, sizes.data.dtype, run.sink_logits, run.backward,
              o.kernel.dlse};
  out.mosaic.lowering_reason = o.kernel.run.lowering_reason;
  return out;
}

Result<pjrt::MemoryStats> compiled(const Options& o, const FitCall& asked,
                                   const Chip& chip, bool backward) {
  auto program = fit_program(asked, backward);
  if (!program) return program.error();
  const std::string& name = asked.chip;
  auto report = compile_program(
      {name.find(':') == std::string::npos ? std::string(chip.target) : name,
       o.plugin.value_or("libtpu")},
      *program);
  if (!report) return report.error();
  return report->memory;
}

Result<int> run(const Options& o) {
  auto lane = lane_of(o);
  if (!lane) return lane.error();
  if (auto e = check_flags(o, *lane); !e) return e.error();
  auto asked = read_asked(o, *lane);
  if (!asked) return asked.error();
  auto budget = make_budget(*asked);
  if (!budget) return budget.error();
  FitReport out{asked->lane, asked->request.tile, std::move(*budget), {}, {},
                {}};
  if (!out.budget.fits()) out.remedies = what_fits(*asked);
  for (const bool backward : {false, true}) {
    // What does not fit does not compile either.
    if (!o.compile || !out.budget.fits()) break;
    if (backward && !out.budget.backward) break;
    auto stats = compiled(o, *asked, out.budget.chip, backward);
    if (!stats) return stats.error();
    (backward ? out.backward : out.forward) = *stats;
  }
  if (o.json) {
    fmt::print("{}\n", json_line(fit_json(out)));
  } else {
    fmt::print("{}", fit_text(out));
  }
  if (auto e = check_fits(*asked, out.budget); !e) {
    print_error(fmt::format("tessera: {}\n", e.error().message));
    return kFailed;
  }
  return kOk;
}

constexpr const char* kFooter =
    "Examples:\n"
    "  tessera fit --mask 'causal & documents' --q-len 131072 --heads 32 \\\n"
    "      --kv-heads 8 --backward\n"
    "  tessera fit --lane mosaic --mask causal --q-len 16384 --compile\n"
    "  tessera fit --mask causal --q-len 1048576 --heads 64 --backward \\\n"
    "      --target v5e --max-steps 4194304\n"
    "\n"
    "What does not fit exits with 1, and the error names the largest parts "
    "and\n"
    "the largest lengths, heads or batch that fit. Facts are not read, and "
    "open\n"
    "ceilings are the worst case of the lengths. docs/memory.md has how each\n"
    "number is found.\n"
    "\n"
    "JSON fields: lane, chip.{name,hbm,devices,room}, tile, forward and\n"
    "backward.{arguments,outputs,scratch (name, kind, bytes, padding, "
    "residual,\n"
    "core), bytes.{argument,output,scratch,core,total}, compiled.{argument,\n"
    "output,temporary,total,code}}, residuals, program_room, needed, fits,\n"
    "would_fit (change, found, fits, needed).";

}  // namespace

Command fit_command() {
  auto o = std::make_shared<Options>();
  Command command{"fit", "What a call takes of a TPU's memory, before launch"};
  add_kernel_flags(command, o->kernel);
  for (Flag& flag : command.flags) {
    if (flag.names == std::string_view("--target")) {
      flag.about = "The chip: v4, v5e, v5p, v6e or tpu7x [v6e]";
    }
    if (flag.names == std::string_view("--backward")) {
      flag.about = "The programs of both passes";
    }
  }
  add_flags(command,
            {
                {"--lane", &o->lane, "NAME", "xla or mosaic [xla]"},
                {"--compile", &o->compile, "",
                 "Compile the programs too, with no device, and print what "
                 "the compiler says beside ours"},
                {"--plugin", &o->plugin, "PATH|NAME",
                 "With --compile: a file or a known name [libtpu]"},
                {"--json", &o->json, "", "One JSON object on stdout"},
            });
  command.footer = kFooter;
  command.work = [o] { return run(*o); };
  return command;
}

}  // namespace tessera::cli
