// cli/command.h: what a command of the program looks like: a name, its flags
// and its work. How arguments are read is in cli/arguments.h.
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
inline constexpr int kRefused = 2;  // bad input, named on stderr

// Where a flag's value goes. A bool takes none; a vector takes one each time
// that the flag is given.
using FlagValue = std::variant<bool*, std::string*, std::optional<std::string>*,
                               std::vector<std::string>*>;

// The help lists flags under their group, in the order in which they were
// added.
inline constexpr const char* kOptionsGroup = "Options";

struct Flag {
  const char* names = "";  // "-o,--out"; an argument without a flag: "file"
  FlagValue value = {};
  const char* type = "";  // what the help calls its value: "FILE"
  std::string about = {};
  bool required = false;
  const char* group = kOptionsGroup;
};

// Fields of a command's JSON, in a line of the help. Names are paths, apart by
// ", ": `bytes.{code,output}` is two of them, `layers[].mask` is of each entry,
// and a part in capitals is any key; at the end, all that is below it.
struct JsonField {
  const char* names = "";
  const char* about = "";
};

// A command parses its flags into its own state, which its work holds.
using Work = std::function<Result<int>()>;

struct Command {
  std::string name;
  std::string about;
  std::string footer = {};
  std::vector<Flag> flags = {};
  // After the footer. None where the JSON is a receipt.
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
// With `records` it has the flag --record, into bench/results.
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
