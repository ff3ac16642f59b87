// cli/argument_errors.cc: finds the argument that is wrong.
#include "cli/argument_errors.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>

#include "base/fail.h"
#include "base/nearest.h"
#include "base/text.h"
#include "request/numbers.h"
#include "request/unsupported.h"

namespace tessera::cli {
namespace {

std::string command_names(const Program& program) {
  std::vector<std::string> names;
  for (const Command& c : program.commands) names.push_back(c.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

const Command* find_command(const Program& program, std::string_view name) {
  for (const Command& c : program.commands) {
    if (c.name == name) return &c;
  }
  return nullptr;
}

// Whether the flag takes a value; absent if `name` is no flag. Null `command`:
// the flags of the program itself.
std::optional<bool> takes_value(const Command* command, std::string_view name) {
  if (name == "-h" || name == "--help") return false;
  if (!command) {
    if (name == "--version") return false;
    return {};
  }
  for (const Flag& flag : command->flags) {
    for (const std::string_view own : request::split(flag.names, ',')) {
      if (own == name) return !std::holds_alternative<bool*>(flag.value);
    }
  }
  return {};
}

// The error of a flag that the command does not have. It names the nearest
// flag, or says why Tessera has no such feature.
std::optional<Error> unknown_flag(const Program& program,
                                  const Command& command,
                                  const std::vector<std::string>& arguments) {
  std::vector<std::string_view> known = {"help"};
  for (const Flag& flag : command.flags) {
    for (const std::string_view name : request::split(flag.names, ',')) {
      if (name.starts_with("--")) known.push_back(name.substr(2));
    }
  }
  for (const std::string& argument : arguments) {
    if (!argument.starts_with("--") || argument.size() == 2) continue;
    const std::string name = argument.substr(2, argument.find('=') - 2);
    if (const auto why = request::refusal(name)) {
      return invalid("cli", "{}, found --{}", *why, name);
    }
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    const std::string hint = nearest(name, known);
    return invalid(
        "cli", "a flag must be one of `{} {} --help`, found {}{}", program.name,
        command.name, in_quotes("--" + name),
        hint.empty() ? "" : fmt::format(" (did you mean --{}?)", hint));
  }
  return {};
}

}  // namespace

std::optional<Error> missing_value(const Program& program,
                                   const std::vector<std::string>& arguments) {
  const Command* command = nullptr;
  for (size_t i = 0; i + 1 < arguments.size(); ++i) {
    const std::string& next = arguments[i + 1];
    if (!arguments[i].starts_with('-')) {
      if (!command) command = find_command(program, arguments[i]);
      continue;
    }
    if (!takes_value(command, arguments[i]).value_or(false)) continue;
    if (!next.starts_with("--") && !takes_value(command, next)) {
      ++i;  // the flag's value
      continue;
    }
    return invalid("cli", "{} must be given a value, found {} in its place",
                   arguments[i], in_quotes(next));
  }
  return {};
}

Error argument_error(const Program& program,
                     const std::vector<std::string>& arguments,
                     const Error& otherwise) {
  if (arguments.empty() || arguments[0].starts_with("-")) return otherwise;
  const Command* command = find_command(program, arguments[0]);
  if (!command) {
    return invalid("cli", "a command must be one of {}, found {}",
                   command_names(program), in_quotes(arguments[0]));
  }
  auto unknown = unknown_flag(program, *command, arguments);
  return unknown ? *unknown : otherwise;
}

}  // namespace tessera::cli
