// cli/fit/flags.cc: makes a budget from flags.
#include "cli/fit/flags.h"

#include <fmt/format.h>

#include <utility>

#include "base/fail.h"
#include "base/text.h"
#include "cli/compile/asked_kernel.h"
#include "cli/compile/report.h"
#include "cli/fit/mesh.h"
#include "cli/lowering.h"

namespace tessera::cli {
namespace {

Result<LaneId> lane_of(const FitFlags& o) {
  const std::string name = o.lane.value_or("xla");
  for (const LaneId lane : {LaneId::xla, LaneId::mosaic}) {
    if (name == to_string(lane)) return lane;
  }
  return invalid("cli", "--lane must be xla or mosaic, found {}",
                 in_quotes(name));
}

Result<XlaMethod> method_of(const FitFlags& o, LaneId lane) {
  if (!o.method) return XlaMethod::worklist;
  if (lane != LaneId::xla) {
    return invalid("cli", "--method goes with --lane xla, found --lane {}",
                   to_string(lane));
  }
  return parse_xla_method(*o.method);
}

Result<void> check_flags(const FitFlags& o, LaneId lane) {
  const KernelFlags& k = o.kernel;
  std::vector<GivenFlag> settings = kernel_settings(k);
  settings.push_back({"--numbers", k.run.numbers.has_value()});
  const auto of_kernel = first_given(settings);
  if (lane == LaneId::xla && !of_kernel.empty()) {
    return invalid("cli",
                   "--tiles-per-pass, --fetch-ahead, --keys-per-query, "
                   "--page-steps, --query-chunk, --row-sum, --sink-telemetry "
                   "and --numbers go with --lane mosaic, found {} with xla",
                   of_kernel);
  }
  if (k.query_chunk && !k.run.backward) {
    return invalid("cli", "--query-chunk goes with --backward, found it alone");
  }
  if (auto e = check_reason_flag(k.run.lowering_reason); !e) return e;
  if (o.plugin && !o.compile) {
    return invalid("cli", "--plugin goes with --compile, found it alone");
  }
  return {};
}

Result<FitCall> read_asked(const FitFlags& o, LaneId lane) {
  const std::string chip = o.kernel.run.request.target.value_or("v6e");
  auto method = method_of(o, lane);
  if (!method) return method.error();
  if (lane == LaneId::mosaic) {
    KernelFlags passes = o.kernel;
    passes.sink_telemetry = false;  // telemetry has a kernel of its own
    auto asked = read_asked_call(passes, chip);
    if (!asked) return asked.error();
    FitCall out = asked_fit(std::move(*asked), chip);
    out.call.sink_telemetry = o.kernel.sink_telemetry;
    // With a given tile, tiles per pass are chosen for each direction, as in a
    // session.
    const auto& request = o.kernel.run.request;
    out.open_passes = (request.tile || request.plan) && o.kernel.open();
    return out;
  }
  auto asked = load_asked(o.kernel.run.request);
  if (!asked) return asked.error();
  RunOptions sizes;
  RunFlags run = o.kernel.run;
  if (!run.dtype) run.dtype = "bf16";
  if (auto e = read_shape(run, sizes); !e) return e.error();
  FitCall out;
  out.request = std::move(asked->request);
  out.present = asked->present;
  out.method = *method;
  out.chip = chip;
  out.call = {sizes.data.shape, sizes.data.dtype, run.sink_logits, run.backward,
              o.kernel.dlse};
  out.mosaic.lowering_reason = o.kernel.run.lowering_reason;
  return out;
}

Result<pjrt::MemoryStats> compiled(const FitFlags& o, const FitCall& asked,
                                   const Chip& chip,
                                   const Result<std::string>& program) {
  if (!program) return program.error();
  const std::string& name = asked.chip;
  auto report = compile_program(
      {name.find(':') == std::string::npos ? std::string(chip.target) : name,
       o.plugin.value_or("libtpu")},
      *program);
  if (!report) return report.error();
  return report->memory;
}

}  // namespace

Result<FitReport> fit_request(const FitFlags& o) {
  auto lane = lane_of(o);
  if (!lane) return lane.error();
  if (auto e = check_flags(o, *lane); !e) return e.error();
  SessionOptions spread;
  if (auto e = read_mesh(o.kernel.run, spread); !e) return e.error();
  if (o.kernel.run.mesh) {
    if (auto method = method_of(o, *lane); !method) return method.error();
    return fit_on_mesh(o, *lane, spread);
  }
  auto asked = read_asked(o, *lane);
  if (!asked) return asked.error();
  auto budget = make_budget(*asked);
  if (!budget) return budget.error();
  FitReport out{asked->lane, asked->method, asked->request.tile,
                std::move(*budget)};
  if (!out.budget.fits()) out.remedies = what_fits(*asked);
  for (const bool backward : {false, true}) {
    // A call that does not fit would not compile.
    if (!o.compile || !out.budget.fits()) break;
    if (backward && !out.budget.backward) break;
    auto stats =
        compiled(o, *asked, out.budget.chip, program_text(*asked, backward));
    if (!stats) return stats.error();
    (backward ? out.backward : out.forward) = *stats;
  }
  if (o.compile && out.budget.fits() && out.budget.sinks) {
    auto stats = compiled(o, *asked, out.budget.chip, sinks_text(*asked));
    if (!stats) return stats.error();
    out.sinks = *stats;
  }
  return out;
}

std::vector<GivenFlag> kernel_settings(const KernelFlags& k) {
  return {{"--tiles-per-pass", k.tiles_per_pass.has_value()},
          {"--fetch-ahead", k.fetch_ahead.has_value()},
          {"--keys-per-query", k.keys_per_query.has_value()},
          {"--page-steps", k.page_steps.has_value()},
          {"--query-chunk", k.query_chunk.has_value()},
          {"--row-sum", k.run.row_sum.has_value()},
          {"--sink-telemetry", k.sink_telemetry}};
}

void add_fit_flags(Command& command, FitFlags& f) {
  add_kernel_flags(command, f.kernel);
  add_mesh_flags(command, f.kernel.run, "A mesh");
  for (Flag& flag : command.flags) {
    if (flag.names == std::string_view("--target")) {
      flag.about = "The chip: v4, v5e, v5p, v6e or tpu7x [v6e]";
    }
    if (flag.names == std::string_view("--backward")) {
      flag.about = "Budget the programs of both passes";
    }
    if (flag.names == std::string_view("--mesh")) {
      flag.about =
          "Budget a chip of a mesh, data=2,seq=4 and the like (`tessera "
          "shard`); facts are read then";
    }
  }
  add_flags(
      command,
      {
          {"--lane", &f.lane, "NAME", "xla or mosaic [xla]"},
          {"--method", &f.method, "NAME",
           "Method of the xla lane: worklist, chunked or dense [worklist]"},
          {"--sink-telemetry", &f.kernel.sink_telemetry, "",
           "Lane mosaic: budget the program of sink telemetry too"},
          {"--compile", &f.compile, "",
           "Compile the programs too, with no device, and print what "
           "the compiler says beside ours"},
          {"--plugin", &f.plugin, "PATH|NAME",
           "With --compile: a file or a known name [libtpu]"},
      });
}

}  // namespace tessera::cli
