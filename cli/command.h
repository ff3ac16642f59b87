// cli/command.h: a command of the program: its name, its flags and its work.
// cli/arguments.h parses arguments.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tessera/result.h"

namespace tessera::cli {

// Exit codes.
inline constexpr int kOk = 0;
inline constexpr int kFailed = 1;   // the work ran and its answer is "no"
inline constexpr int kRefused = 2;  // bad input; stderr says which

// Where a flag's value is stored. A bool flag takes no value; a vector gets one
// value for each use of the flag.
using FlagValue = std::variant<bool*, std::string*, std::optional<std::string>*,
                               std::vector<std::string>*>;

// The default group. The help lists flags by group, in the order of their
// addition.
inline constexpr const char* kOptionsGroup = "Options";

struct Flag {
  const char* names = "";  // "-o,--out"; a positional argument: "file"
  FlagValue value = {};
  const char* type = "";  // the value's name in the help: "FILE"
  std::string about = {};
  bool required = false;
  const char* group = kOptionsGroup;
};

// Fields of a command's JSON, as one line of the help. Names are paths
// separated by ", ". `bytes.{code,output}` means two paths, `layers[].mask` a
// field of each entry. A part in capitals means any key and, at the end,
// everything below it.
struct JsonField {
  const char* names = "";
  const char* about = "";
};

// The function of a command. It owns the state that the flags are parsed into.
using Work = std::function<Result<int>()>;

struct Command {
  std::string name;
  std::string about;
  std::string footer = {};
  std::vector<Flag> flags = {};
  // Listed after the footer. Empty if the JSON is a receipt.
  std::span<const JsonField> json_fields = {};
  Work work = {};
};

struct Program {
  std::string name;  // "tessera"
  std::string about;
  std::string footer;
  std::vector<Command> commands;
};

void add_flags(Command& command, std::vector<Flag> flags);
void add_flags(Command& command, const char* group, std::vector<Flag> flags);

Command plan_command();
Command pack_command();
Command tree_command();
Command show_command();
Command explain_command();
Command export_command();
Command check_command();
Command route_command();
Command run_command();
Command choose_command();
Command bridge_command();
Command receipt_command();
Command doctor_command();
// With `records` the command has the flag --record, which writes into
// bench/results.
Command gate_command(bool records = false);
Command compile_command();
Command schedule_command();
Command shard_command();
Command audit_command();
Command fit_command();
Command warm_command();
Command train_command();
Command model_command();

}  // namespace tessera::cli
