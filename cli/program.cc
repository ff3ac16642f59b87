// cli/program.cc: parses the arguments, runs one command, reports.
#include "cli/program.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <new>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/fail.h"
#include "base/nearest.h"
#include "base/text.h"
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/numbers.h"
#include "cli/request/flags.h"
#include "cli/unsupported.h"
#include "tessera/mask.h"

namespace tessera::cli {
namespace {

constexpr size_t kLineColumns = 80;

bool asks_for_json(const std::vector<std::string>& arguments) {
  return std::find(arguments.begin(), arguments.end(), "--json") !=
         arguments.end();
}

// The text that an error's column points into.
std::string mask_argument(const std::vector<std::string>& arguments,
                          const Error& error) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    std::string text;
    if (arguments[i] == "--mask" && i + 1 < arguments.size()) {
      text = arguments[i + 1];
    } else if (arguments[i].starts_with("--mask=")) {
      text = arguments[i].substr(7);
    }
    if (text.empty()) continue;
    auto mask = parse_mask(text);
    if (!mask && mask.error().column == error.column) return text;
  }
  return {};
}

// A caret helps under text that a terminal shows as it is.
bool fits_a_line(const std::string& text) {
  return !text.empty() && text.size() + 2 <= kLineColumns &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return c >= 0x20 && c < 0x7f; });
}

int report(const Program& program, const Error& error,
           const std::vector<std::string>& arguments) {
  print_error(fmt::format("{}: {}\n", program.name, error.message));
  if (error.column > 0) {
    const std::string text = mask_argument(arguments, error);
    if (fits_a_line(text)) {
      print_error(fmt::format("  {}\n  {:>{}}\n", text, '^', error.column));
    }
  }
  if (asks_for_json(arguments)) {
    nlohmann::json out = {{"error", {{"message", error.message}}}};
    if (error.column > 0) out["error"]["column"] = error.column;
    fmt::print("{}\n", out.dump(2));
  }
  return kRefused;
}

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

// Whether a value follows the flag; nothing of what is no flag. Without a
// command these are the flags of the program itself.
std::optional<bool> takes_value(const Command* command, std::string_view name) {
  if (name == "-h" || name == "--help") return false;
  if (!command) {
    if (name == "--version") return false;
    return {};
  }
  for (const Flag& flag : command->flags) {
    for (const std::string_view own : split(flag.names, ',')) {
      if (own == name) return !std::holds_alternative<bool*>(flag.value);
    }
  }
  return {};
}

// A flag that no command knows: refused by name, or with the nearest one.
std::optional<Error> unknown_flag(const Program& program,
                                  const Command& command,
                                  const std::vector<std::string>& arguments) {
  std::vector<std::string_view> known = {"help"};
  for (const Flag& flag : command.flags) {
    for (const std::string_view name : split(flag.names, ',')) {
      if (name.starts_with("--")) known.push_back(name.substr(2));
    }
  }
  for (const std::string& argument : arguments) {
    if (!argument.starts_with("--") || argument.size() == 2) continue;
    const std::string name = argument.substr(2, argument.find('=') - 2);
    if (const auto why = refusal(name)) {
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

// A flag that takes a value, with the next flag in its place.
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
      ++i;  // its value
      continue;
    }
    return invalid("cli", "{} must be given a value, found {} in its place",
                   arguments[i], in_quotes(next));
  }
  return {};
}

// What is wrong with arguments that the parser refused.
Error refusal_of(const Program& program,
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

int run(const Program& program, const std::vector<std::string>& arguments) {
  if (auto error = missing_value(program, arguments)) {
    return report(program, *error, arguments);
  }
  auto parsed = parse_arguments(program, arguments);
  if (!parsed) {
    const Error error = refusal_of(program, arguments, parsed.error());
    return report(program, error, arguments);
  }
  if (!parsed->command) {
    fmt::print("{}", parsed->text);
    return kOk;
  }
  auto code = parsed->command->work();
  return code ? *code : report(program, code.error(), arguments);
}

int report_lost_output(const Program& program) {
  print_error(
      fmt::format("{}: [cli] stdout must take the output, found it closed or "
                  "full\n",
                  program.name));
  return kRefused;
}

}  // namespace

int run_program(const Program& program,
                const std::vector<std::string>& arguments) {
  try {
    const int code = run(program, arguments);
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
    return report_lost_output(program);
  } catch (const std::system_error&) {  // of a print
    return report_lost_output(program);
  } catch (const std::bad_alloc&) {
    return report(program,
                  {ErrorKind::limit,
                   "[cli] the work must fit this machine's memory, found too "
                   "little"},
                  arguments);
  }
}

}  // namespace tessera::cli
