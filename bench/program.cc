// bench/program.cc: the help text of `tessera-bench` and its list of commands.
#include "bench/commands.h"

namespace tessera::bench {
namespace {

constexpr const char* kAbout =
    "tessera-bench measures this machine: the planner, and attention on every\n"
    "lane beside its public peers.";

constexpr const char* kExamples =
    "Examples:\n"
    "  tessera-bench plan\n"
    "  tessera-bench attention --backward --peers bench/peers\n"
    "  tessera-bench routed --tokens 8192 --rounds 1 --growth off\n"
    "\n"
    "bench/README.md tells what is measured, and how. Every result is judged\n"
    "against fp64 within derived bounds.\n"
    "Exit codes: 0 done, 1 a result is wrong, 2 bad input.";

}  // namespace

cli::Program bench_program() {
  return {
      "tessera-bench",
      kAbout,
      kExamples,
      {plan_command(), kernels_command(), functions_command(), blocks_command(),
       attention_command(), xla_command(), recompile_command(),
       routed_command(), pack_command(), shard_command(), mesh_command(),
       cli::gate_command(/*records=*/true)}};
}

}  // namespace tessera::bench
