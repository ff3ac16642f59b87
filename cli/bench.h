// cli/bench.h: the parts of `tessera bench`, each a file.
#pragma once

#include <CLI/CLI.hpp>

#include "cli/command.h"

namespace tessera::cli {

Work add_bench_plan(CLI::App& bench, CLI::App*& command);
Work add_bench_attention(CLI::App& bench, CLI::App*& command);
Work add_bench_recompile(CLI::App& bench, CLI::App*& command);
Work add_bench_xla(CLI::App& bench, CLI::App*& command);
Work add_bench_routed(CLI::App& bench, CLI::App*& command);

}  // namespace tessera::cli
