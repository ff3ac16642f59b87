// cli/command.h: what every command of the program looks like to main.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

#include "tessera/result.h"

namespace tessera::cli {

// Exit codes.
inline constexpr int kOk = 0;
inline constexpr int kFailed = 1;   // the work ran and its answer is "no"
inline constexpr int kRefused = 2;  // bad input, named on stderr

// A command parses its flags into its own state and hands back its work.
using Work = std::function<Result<int>()>;

Work add_plan(CLI::App& app, CLI::App*& command);
Work add_show(CLI::App& app, CLI::App*& command);
Work add_explain(CLI::App& app, CLI::App*& command);
Work add_export(CLI::App& app, CLI::App*& command);
Work add_check(CLI::App& app, CLI::App*& command);
Work add_route(CLI::App& app, CLI::App*& command);
Work add_run(CLI::App& app, CLI::App*& command);
Work add_compile(CLI::App& app, CLI::App*& command);
Work add_bench(CLI::App& app, CLI::App*& command);
Work add_choose(CLI::App& app, CLI::App*& command);
Work add_receipt(CLI::App& app, CLI::App*& command);
Work add_doctor(CLI::App& app, CLI::App*& command);
Work add_gate(CLI::App& app, CLI::App*& command);
Work add_schedule(CLI::App& app, CLI::App*& command);
Work add_bridge(CLI::App& app, CLI::App*& command);

}  // namespace tessera::cli
