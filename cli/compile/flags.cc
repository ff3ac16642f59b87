// cli/compile/flags.cc: the flags of `tessera compile`, and checks of them.
#include "cli/compile/flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>
#include <vector>

#include "base/fail.h"
#include "cli/given_flags.h"
#include "cli/request/file_checks.h"
#include "pjrt/topology.h"

namespace tessera::cli {
namespace {

void add_sink_telemetry(Command& command, KernelFlags& f) {
  add_flags(command, "The kernel",
            {{"--sink-telemetry", &f.sink_telemetry, "",
              "Make the kernel of sink telemetry: forward, without values"}});
}

Result<void> check_together(const CompileFlags& o, bool asked) {
  if (o.program.has_value() == asked) {
    return invalid("cli",
                   "compile must be given a program or a request, found {}",
                   asked ? "both" : "neither");
  }
  if (!asked) {
    KernelFlags others = o.kernel;
    others.run.request.target.reset();
    const std::string found =
        first_given_of(std::move(others), [](Command& command, KernelFlags& f) {
          add_kernel_flags(command, f);
          add_sink_telemetry(command, f);
        });
    if (!found.empty()) {
      return invalid("cli",
                     "a program must come without flags of a request or a "
                     "kernel, found {}",
                     found);
    }
  }
  if (o.emit && !asked) {
    return invalid("cli",
                   "--emit goes with a request, found it with a "
                   "program");
  }
  if (o.receipt && (!asked || o.no_compile)) {
    return invalid("cli", "--receipt goes with a request, found it with {}",
                   asked ? "--no-compile" : "a program");
  }
  if (o.receipt && o.kernel.sink_telemetry) {
    return invalid("cli",
                   "--receipt is of a forward or a backward kernel, found it "
                   "with --sink-telemetry");
  }
  if (o.no_compile && (!o.emit || o.out)) {
    return invalid("cli",
                   "--no-compile goes with --emit and without -o, found "
                   "{}",
                   o.out ? "-o" : "no --emit");
  }
  if (o.no_compile && o.plugin) {
    return invalid("cli",
                   "--no-compile needs no plugin, found --plugin beside it");
  }
  if (!o.kernel.run.request.target) {
    return invalid("cli", "--target must be given, found none (as v6e:1x1)");
  }
  return {};
}

Result<void> check_paths(const CompileFlags& o, bool asked) {
  std::vector<std::string> sources = request_files(o.kernel.run.request);
  if (o.program) sources.push_back(*o.program);
  std::vector<std::string> written = given_files({&o.out, &o.emit, &o.receipt});
  if (o.out && asked) written.push_back(contract_file(o));
  return check_files(std::move(sources), written);
}

constexpr JsonField kJsonFields[] = {
    {"target, platform, devices.{count,kind}"},
    {"plugin", "its file"},
    {"name, fingerprint"},
    {"outputs", "how many"},
    {"bytes.{code,argument,output,alias,temporary,peak,serialized}",
     "peak: null where the plugin does not say"},
    {"cost.NAME", "the compiler's own estimates"},
    {"compile_ms, out, emit"},
    {"kernel.{lane,contract,plan_contract,window_bounds,batch,q_len,kv_len}",
     "with a request"},
    {"kernel.{contract_terms,plan_contract_terms}.NAME",
     "terms that the keys digest"},
    {"kernel.{steps,page}",
     "steps: room of its arrays; page: those in scalar memory at a time, 0: "
     "all"},
    {"kernel.query_chunk",
     "queries whose dQ is in vector memory at a time, 0: all"},
    {"kernel.{tile,tiles_per_pass,heads_per_pass,chosen_by,fetch_ahead,row_sum,"
     "numbers}"},
    {"kernel.lowering.{chip,granule,tile,reason,factor}"},
    {"kernel.vector_memory.{scratch,room,limit}", "as `tessera fit` has it"},
    {"kernel.scalar_bytes"},
};

std::string footer() {
  return fmt::format(
      "Examples:\n"
      "  tessera compile program.mlir --target v6e:1x1\n"
      "  tessera compile program.mlir --target v5p:2x2x1 -o program.bin "
      "--json\n"
      "  tessera compile --mask 'causal & documents' --q-len 32768 --heads 8 "
      "\\\n      --target v6e:1x1 --emit kernel.mlir -o kernel.bin\n"
      "\n"
      "A request makes a kernel that serves every batch of its contract: the "
      "facts\nthat its mask names count as present and are not read, but for "
      "the heads of\npicks, and open ceilings are the worst case of the "
      "lengths (docs/mosaic.md).\n"
      "FILE is a StableHLO module, text or bytecode; -o saves what the plugin\n"
      "serializes, for the same version of the plugin to load. No device is "
      "needed.\n"
      "docs/pjrt.md tells how to get plugins. Targets that work with "
      "libtpu:\n"
      "  {}\n"
      "Any other name is tried as it stands.",
      fmt::join(pjrt::known_targets(), " "));
}

}  // namespace

void add_compile_flags(Command& command, CompileFlags& f) {
  add_flags(command,
            {
                {"file", &f.program, "FILE", "A StableHLO module"},
                {"--plugin", &f.plugin, "PATH|NAME",
                 "PJRT plugin: a file, libtpu or xla_cpu_pjrt [libtpu]"},
                {"--emit", &f.emit, "FILE",
                 "Write the program that a request makes here"},
                {"-o,--out", &f.out, "FILE",
                 "Save the executable here; for a request its contract too, as "
                 "FILE.json"},
                {"--receipt", &f.receipt, "FILE",
                 "With a request: write a receipt that says compiled only"},
                {"--no-compile", &f.no_compile, "",
                 "Stop after --emit, which needs no plugin"},
                {"--json", &f.json, "", "One JSON object on stdout"},
            });
  add_kernel_flags(command, f.kernel);
  add_sink_telemetry(command, f.kernel);
  command.footer = footer();
  command.json_fields = kJsonFields;
}

Result<void> check_flags(const CompileFlags& o) {
  const bool asked = asks_for_kernel(o.kernel);
  if (auto e = check_together(o, asked); !e) return e;
  return check_paths(o, asked);
}

std::string contract_file(const CompileFlags& o) { return *o.out + ".json"; }

}  // namespace tessera::cli
