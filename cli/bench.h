// cli/bench.h: the parts of `tessera bench`, each a file.
#pragma once

#include "cli/command.h"

namespace tessera::cli {

Command bench_plan_command();
Command bench_attention_command();
Command bench_recompile_command();
Command bench_xla_command();
Command bench_routed_command();

}  // namespace tessera::cli
