// cli/program.cc: parses the arguments, runs one command and prints errors.
#include "cli/program.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <new>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <vector>

#include "base/fail.h"
#include "base/text.h"
#include "cli/argument_errors.h"
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/warnings.h"
#include "tessera/mask.h"

namespace tessera::cli {
namespace {

constexpr size_t kLineColumns = 80;

bool asks_for_json(const std::vector<std::string>& arguments) {
  return std::find(arguments.begin(), arguments.end(), "--json") !=
         arguments.end();
}

// The mask text in the arguments, which an error's column refers to.
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

// Whether the terminal shows the text unchanged, so that a caret under it
// points to the right place.
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

int run(const Program& program, const std::vector<std::string>& arguments) {
  if (auto error = missing_value(program, arguments)) {
    return report(program, *error, arguments);
  }
  auto parsed = parse_arguments(program, arguments);
  if (!parsed) {
    const Error error = argument_error(program, arguments, parsed.error());
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
  } catch (const std::filesystem::filesystem_error& e) {
    return report(program,
                  {ErrorKind::io,
                   fmt::format("[file] the file system must answer, found {} "
                               "for {}",
                               in_quotes(e.code().message()),
                               in_quotes(e.path1().string()))},
                  arguments);
  } catch (const std::system_error&) {  // thrown by a print
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
