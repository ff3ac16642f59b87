// cli/run/command.cc: `tessera run`: runs a plan and gives its receipt.
#include "cli/command.h"

#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <utility>

#include "cli/plan/report.h"
#include "cli/receipt/output.h"
#include "cli/request/file_checks.h"
#include "cli/run/options.h"
#include "cli/run/run.h"
#include "cli/trace_flag.h"
#include "cli/warnings.h"

namespace tessera::cli {
namespace {

Result<void> check_names(const RunFlags& f) {
  std::vector<std::string> read = request_files(f.request);
  for (std::string& file :
       given_files({&f.inputs, &f.gate, &f.artifact, &f.shapes})) {
    read.push_back(std::move(file));
  }
  return check_files(std::move(read),
                     given_files({&f.outputs, &f.receipt, &f.trace}));
}

Result<int> run(const RunFlags& flags) {
  auto outcome = run_request(flags);
  if (!outcome) return outcome.error();
  const receipt::Receipt& receipt = outcome->receipt;
  print_warnings(receipt.warnings);
  if (flags.outputs) {
    auto e = write_outputs(*flags.outputs, outcome->data);
    if (!e) return e.error();
  }
  return give_receipt(receipt, {flags.outputs, flags.receipt, flags.json});
}

}  // namespace

Command run_command() {
  auto flags = std::make_shared<RunFlags>();
  Command command{"run", "Run attention over a plan: outputs, check, receipt"};
  add_run_flags(command, *flags);
  add_route_flags(command, flags->route);
  add_flags(command,
            {
                {"--json", &flags->json, "", "The receipt alone, on stdout"},
            });
  command.footer =
      "Examples:\n"
      "  tessera run --mask 'causal & documents' --q-len 8192 --docs lognormal "
      "\\\n"
      "      --heads 8 --head-dim 64 --check\n"
      "  tessera run --plan batch.plan --backward --dtype bf16 --kv-heads 2\n"
      "  tessera run --mask 'causal & routed(top=8, block=256)' --q-len 8192\n"
      "  tessera run --plan batch.plan --lane xla --trace run.trace.json\n"
      "  tessera run --mask causal --inputs qkv.safetensors \\\n"
      "      --outputs out.safetensors --receipt run.json\n"
      "\n"
      "docs/run.md explains the files, docs/receipt_fields.md every field of "
      "the\nreceipt. Exit code 1 when the check fails.";
  command.work = [flags]() -> Result<int> {
    if (auto e = check_names(*flags); !e) return e.error();
    return traced(flags->trace, !flags->json, [&] { return run(*flags); });
  };
  return command;
}

}  // namespace tessera::cli
