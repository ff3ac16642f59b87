// bench/commands.h: the commands of `tessera-bench`, one in each folder.
#pragma once

#include "cli/command.h"

namespace tessera::bench {

cli::Command plan_command();
cli::Command kernels_command();
cli::Command functions_command();
cli::Command blocks_command();
cli::Command attention_command();
cli::Command xla_command();
cli::Command recompile_command();
cli::Command routed_command();
cli::Command shard_command();
cli::Command mesh_command();
cli::Command pack_command();

// All commands above, and `gate`, which `tessera` has too.
cli::Program bench_program();

}  // namespace tessera::bench
