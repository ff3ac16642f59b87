// cli/bridge/command.cc: `tessera bridge`: what JAX exported, run by a plugin.
#include "cli/command.h"

#include <memory>

#include "cli/bridge/run.h"
#include "cli/receipt/output.h"
#include "cli/request/file_checks.h"
#include "cli/trace_flag.h"
#include "cli/warnings.h"

namespace tessera::cli {
namespace {

Result<int> run(const BridgeFlags& f) {
  auto outcome = run_bridge(f);
  if (!outcome) return outcome.error();
  const receipt::Receipt& receipt = outcome->receipt;
  print_warnings(receipt.warnings);
  if (f.outputs) {
    auto e =
        write_bridge_outputs(*f.outputs, outcome->spec, outcome->data.outputs);
    if (!e) return e.error();
  }
  return give_receipt(receipt, {f.outputs, f.receipt, f.json});
}

}  // namespace

Command bridge_command() {
  auto f = std::make_shared<BridgeFlags>();
  Command command{"bridge",
                  "Run an operation that JAX exported, through a plugin"};
  add_flags(
      command,
      {
          {"artifact", &f->artifact, "ARTIFACT",
           "StableHLO bytecode, as jax.export serializes it",
           /*required=*/true},
          {"--shapes", &f->shapes, "FILE",
           "The JSON beside it: names, dtypes and shapes", /*required=*/true},
          {"--inputs", &f->inputs, "FILE",
           ".safetensors with the inputs by name [random]"},
          {"--seed", &f->seed, "N",
           "Seed of random inputs and of a sampled check [0]"},
          {"--outputs", &f->outputs, "FILE", "Write a .safetensors file"},
          {"--receipt", &f->receipt, "FILE",
           "Write the receipt, a JSON object"},
      });
  add_plugin_flags(command, *f);
  add_flags(
      command,
      {
          {"--check", &f->check, "",
           "Compare attention with fp64, where the file of shapes declares it"},
          {"--trace", &f->trace, "FILE", kTraceHelp},
          {"--json", &f->json, "", "Print the receipt alone, on stdout"},
      });
  command.footer =
      "Examples:\n"
      "  .venv/bin/python examples/export_jax.py attention out\n"
      "  tessera bridge out/attention.mlirbc --shapes out/attention.json \\\n"
      "      --inputs out/attention.in.safetensors --check\n"
      "\n"
      "What runs is JAX's program and not one of ours: the lane is jax_bridge "
      "in every\nreceipt, and its key is the whole artifact. docs/bridge.md "
      "describes the files.\nExit code 1 when the check fails.";
  command.work = [f]() -> Result<int> {
    auto apart =
        check_files(given_files({&f->artifact, &f->shapes, &f->inputs}),
                    given_files({&f->outputs, &f->receipt, &f->trace}));
    if (!apart) return apart.error();
    return traced(f->trace, !f->json, [&] { return run(*f); });
  };
  return command;
}

}  // namespace tessera::cli
