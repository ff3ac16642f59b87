// cli/gate/command.cc: `tessera gate`: each kernel of ours against plain XLA,
// on this machine.
#include "cli/command.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "base/fail.h"
#include "base/files.h"
#include "base/text.h"
#include "cli/gate/flags.h"
#include "cli/gate/report.h"
#include "cli/given_flags.h"
#include "cli/machine.h"
#include "cli/progress.h"
#include "cli/request/file_checks.h"
#include "cli/run/options.h"
#include "request/numbers.h"
#include "run/lane_rules.h"

namespace tessera::cli {
namespace {

constexpr int64_t kMaxRounds = 1000;

// Prints the verdicts of rows from a file, without measuring.
Result<int> judge_rows(const GateFlags& o) {
  GateFlags measuring = o;
  measuring.rows.reset();
  measuring.out.reset();
  measuring.json = false;
  const std::string other =
      first_given_of(std::move(measuring), [](Command& command, GateFlags& f) {
        add_gate_flags(command, f, /*records=*/true);
      });
  if (!other.empty()) {
    return invalid("cli",
                   "--rows measures nothing and goes with -o and --json "
                   "alone, found {}",
                   other);
  }
  if (auto e = check_files({*o.rows}, given_files({&o.out})); !e) {
    return e.error();
  }
  auto text = read_file(*o.rows, kMaxGateBytes);
  if (!text) return text.error();
  auto table = run::parse_gate_rows(*text);
  if (!table) return in_file(table.error(), *o.rows);
  set_verdicts(*table);
  const std::string json = gate_table_json(*table);
  if (o.out) {
    if (auto e = write_file(*o.out, json); !e) return e.error();
  }
  fmt::print("{}", o.json ? json : gate_table_text(*table));
  return kOk;
}

Result<GateReport> measure(const GateSizes& sizes, int64_t rounds,
                           const GateFlags& o, const Machine& machine) {
  const OtherCores others;
  Progress progress("measuring");
  auto measured =
      measure_gate(sizes, rounds, o.plugin, machine, progress.callback());
  if (!measured) return measured.error();
  return GateReport{*std::move(measured), machine, others.so_far(), o.quick};
}

// A table without times must not replace one with times.
Result<void> check_timed(const GateMeasured& measured) {
  const auto& rows = measured.table.rows;
  const bool timed = std::ranges::any_of(
      rows, [](const GateRow& row) { return row.factor.has_value(); });
  if (timed) return {};
  return invalid("gate",
                 "a table that is recorded must have times, found none: {}",
                 in_quotes(measured.plugin));
}

Result<int> run(const GateFlags& o) {
  if (o.rows) return judge_rows(o);
  const Machine machine = this_machine(true);
  std::optional<std::string> path = o.out;
  if (o.record) {
    if (o.out) {
      return invalid("cli", "--record names the file itself, found -o {}",
                     in_quotes(*o.out));
    }
    const std::string folder = "bench/results/" + slug(machine.cpu);
    std::error_code e;
    std::filesystem::create_directories(folder, e);
    path = folder + "/gate.json";
  }
  auto checked = check_files(given_files({&o.artifact, &o.shapes, &o.plugin}),
                             given_files({&path}));
  if (!checked) return checked.error();
  auto sizes = read_sizes(o);
  if (!sizes) return sizes.error();
  auto rounds = request::parse_int(o.rounds.value_or(o.quick ? "1" : "5"),
                                   "--rounds", 1, kMaxRounds);
  if (!rounds) return rounds.error();
  auto report = measure(*sizes, *rounds, o, machine);
  if (!report) return report.error();
  if (o.record) {
    if (auto e = check_timed(report->measured); !e) return e.error();
  }
  const std::string text = gate_table_json(*report);
  if (path) {
    if (auto e = write_file(*path, text); !e) return e.error();
  }
  if (o.json) {
    fmt::print("{}", text);
  } else {
    fmt::print("{}", gate_table_text(*report));
    if (path) fmt::print("\n{:<11} {}\n", "table", on_a_line(*path));
  }
  return kOk;
}

constexpr JsonField kJsonFields[] = {
    {"schema, tessera"},
    {"machine, plugin, quick, busy_cores", "in a table that was measured"},
    {"rows[].NAME", "as docs/dispatch.md explains them"},
};

}  // namespace

Command gate_command(bool records) {
  auto o = std::make_shared<GateFlags>();
  Command command{
      "gate", "Measure each of our kernels against plain XLA, with a verdict"};
  add_gate_flags(command, *o, records);
  command.footer =
      "The whole takes ten minutes or more; a table is written when it is "
      "done.\n"
      "Each output is held against fp64 before it is timed. A row wins where "
      "its kernel is\nmore than 1.10 times as fast as the fastest of XLA's "
      "programs (dense, chunked,\nworklist); a predicted row beyond its error "
      "bar. "
      "The verdict is of a kernel's rows\ntogether: promote; experimental "
      "where few shape classes win, delete where none\ndoes, wrong, unjudged, "
      "or unmeasured. `tessera run --gate FILE` reads the table\n"
      "(docs/dispatch.md).";
  command.json_fields = kJsonFields;
  command.work = [o] { return run(*o); };
  return command;
}

}  // namespace tessera::cli
