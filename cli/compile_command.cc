// cli/compile_command.cc: `tessera compile`: a program for a device that need
// not be here.
#include "cli/compile_command.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>

#include "base/fail.h"
#include "base/files.h"
#include "base/text.h"
#include "cli/command.h"

namespace tessera::cli {
namespace {

constexpr int64_t kMaxProgramBytes = int64_t{1} << 31;

struct Options {
  TargetFlags target;
  std::string program;
  std::optional<std::string> out;
  bool json = false;
};

Result<int> run(const Options& o) {
  if (o.out) {
    if (auto e = check_output(*o.out); !e) return e.error();
  }
  auto program = read_file(o.program, kMaxProgramBytes);
  if (!program) return program.error();
  if (program->empty()) {
    return invalid("compile", "a program must hold a module, found none in {}",
                   in_quotes(o.program));
  }
  auto report = compile_program(o.target, *program);
  if (!report) return report.error();
  if (o.out) {
    if (auto e = write_file(*o.out, report->bytes); !e) return e.error();
  }
  if (o.json) {
    nlohmann::json out = compile_json(*report);
    if (o.out) out["out"] = *o.out;
    fmt::print("{}\n", out.dump());
  } else {
    fmt::print("{}", compile_text(*report));
    if (o.out) {
      fmt::print("{:<11} {}, {} bytes\n", "saved", *o.out,
                 report->bytes.size());
    }
  }
  return kOk;
}

std::string footer() {
  return fmt::format(
      "Examples:\n"
      "  tessera compile program.mlir --target v6e:1x1\n"
      "  tessera compile program.mlir --target v5p:2x2x1 -o program.bin "
      "--json\n"
      "\n"
      "FILE is a StableHLO module, text or bytecode; -o saves what the plugin\n"
      "serializes, for the same version of the plugin to load. No device is "
      "needed.\n"
      "docs/pjrt.md tells how to get plugins. Targets that work with "
      "libtpu:\n"
      "  {}\n"
      "Any other name is tried as it stands.\n"
      "\n"
      "JSON fields: target, plugin (its file), platform, "
      "devices.{{count,kind}}, name,\nfingerprint, outputs (how many), "
      "bytes.{{code,argument,output,alias,temporary,\npeak,serialized}} (peak "
      "null where the plugin does not say), cost (the\ncompiler's own "
      "estimates by name), compile_ms, out.",
      fmt::join(pjrt::known_targets(), " "));
}

}  // namespace

void add_target_flags(CLI::App& command, TargetFlags& flags) {
  command
      .add_option("--target", flags.target,
                  "The devices to compile for, as v6e:1x1")
      ->required()
      ->type_name("NAME");
  command
      .add_option("--plugin", flags.plugin,
                  "PJRT plugin: a file, libtpu or xla_cpu_pjrt (libtpu)")
      ->type_name("PATH|NAME");
}

Work add_compile(CLI::App& app, CLI::App*& command) {
  auto o = std::make_shared<Options>();
  command = app.add_subcommand(
      "compile", "Compile a program ahead of time, with no device");
  command->add_option("file", o->program, "A StableHLO module")
      ->required()
      ->type_name("FILE");
  add_target_flags(*command, o->target);
  command->add_option("-o,--out", o->out, "Save the executable here")
      ->type_name("FILE");
  command->add_flag("--json", o->json, "One JSON object on stdout");
  command->footer(footer());
  return [o] { return run(*o); };
}

}  // namespace tessera::cli
