// cli/bench_command.cc: `tessera bench`: what it can measure.
#include "base/fail.h"
#include "cli/bench.h"
#include "cli/command.h"

namespace tessera::cli {

Command bench_command() {
  Command command{"bench", "Measure this machine"};
  command.parts = {bench_plan_command(), bench_attention_command(),
                   bench_recompile_command(), bench_xla_command(),
                   bench_routed_command()};
  command.work = []() -> Result<int> {
    return invalid("cli",
                   "bench must be told what to measure (plan, attention, "
                   "recompile, xla or routed), found nothing");
  };
  return command;
}

}  // namespace tessera::cli
