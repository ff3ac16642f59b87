// cli/bench_command.cc: `tessera bench`: what it can measure.
#include "base/fail.h"
#include "cli/bench.h"
#include "cli/command.h"

namespace tessera::cli {

Work add_bench(CLI::App& app, CLI::App*& command) {
  command = app.add_subcommand("bench", "Measure this machine");
  command->require_subcommand(0, 1);
  CLI::App* plan = nullptr;
  CLI::App* attention = nullptr;
  CLI::App* recompile = nullptr;
  CLI::App* xla = nullptr;
  CLI::App* routed = nullptr;
  Work on_plan = add_bench_plan(*command, plan);
  Work on_attention = add_bench_attention(*command, attention);
  Work on_recompile = add_bench_recompile(*command, recompile);
  Work on_xla = add_bench_xla(*command, xla);
  Work on_routed = add_bench_routed(*command, routed);
  return [=]() -> Result<int> {
    if (plan->parsed()) return on_plan();
    if (attention->parsed()) return on_attention();
    if (recompile->parsed()) return on_recompile();
    if (xla->parsed()) return on_xla();
    if (routed->parsed()) return on_routed();
    return invalid("cli",
                   "bench must be told what to measure (plan, attention, "
                   "recompile, xla or routed), found nothing");
  };
}

}  // namespace tessera::cli
