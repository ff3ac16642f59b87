// cli/program.cc: parses the arguments, runs one command, reports.
#include "cli/program.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "base/fail.h"
#include "base/nearest.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/flags.h"
#include "cli/numbers.h"
#include "cli/refused.h"
#include "tessera/mask.h"
#include "tessera/version.h"

namespace tessera::cli {
namespace {

constexpr const char* kAbout =
    "Tessera plans and runs block-sparse attention: a mask and the facts of a\n"
    "batch become exact worklists of score tiles, in microseconds, without a\n"
    "dense mask.";

constexpr const char* kExamples =
    "Examples:\n"
    "  tessera plan --mask 'causal & documents' --q-len 32768 \\\n"
    "      --docs lognormal:mean=2048,seed=0 -o batch.plan\n"
    "  tessera show batch.plan -o batch.html\n"
    "  tessera explain --plan batch.plan --query 5000 --key 4000\n"
    "  tessera check --mask 'causal & window(127, 0)' --q-len 1000 --tile 64\n"
    "  tessera run --plan batch.plan --check --receipt run.json\n"
    "\n"
    "Exit codes: 0 done, 1 the answer is no (a check failed), 2 bad input.\n"
    "Every command takes --json: stdout is then one JSON object.";

constexpr size_t kNameColumns = 28;
constexpr size_t kLineColumns = 80;

// Breaks long descriptions at spaces, so that the help fits a terminal.
class Help : public CLI::Formatter {
 public:
  Help() { column_width(kNameColumns); }

  std::string make_option_desc(const CLI::Option* option) const override {
    std::string out;
    size_t line = 0;
    for (std::string_view word : split(option->get_description(), ' ')) {
      if (line > 0 && line + 1 + word.size() > kLineColumns - kNameColumns) {
        out += '\n';
        line = 0;
      } else if (line > 0) {
        out += ' ';
        ++line;
      }
      out += word;
      line += word.size();
    }
    return out;
  }
};

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

int report(const Error& error, const std::vector<std::string>& arguments) {
  print_error(fmt::format("tessera: {}\n", error.message));
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

// The parser's own complaints, in the form of ours.
Error usage_error(const CLI::ParseError& e) {
  std::string text = e.what();
  std::replace(text.begin(), text.end(), '\n', ' ');
  return invalid("cli", "arguments must fit the help (--help), found: {}",
                 text);
}

std::string command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    names.push_back(command->get_name());
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

// A flag that no command knows: refused by name, or with the nearest one.
std::optional<Error> unknown_flag(const CLI::App& top,
                                  const std::vector<std::string>& arguments) {
  const CLI::App* inner = &top;
  std::string path = top.get_name();
  for (const CLI::App* sub : top.get_subcommands(nullptr)) {
    if (arguments.size() < 2 || arguments[1] != sub->get_name()) continue;
    inner = sub;
    path += " " + sub->get_name();
  }
  const CLI::App& command = *inner;
  for (const std::string& argument : arguments) {
    if (!argument.starts_with("--") || argument.size() == 2) continue;
    const std::string name = argument.substr(2, argument.find('=') - 2);
    if (const auto why = refusal(name)) {
      return invalid("cli", "{}, found --{}", *why, name);
    }
    if (command.get_option_no_throw("--" + name)) continue;
    std::vector<std::string> names;
    for (const CLI::Option* option : command.get_options()) {
      for (const std::string& n : option->get_lnames()) names.push_back(n);
    }
    const std::vector<std::string_view> known(names.begin(), names.end());
    const std::string hint = nearest(name, known);
    return invalid(
        "cli",
        "a flag must be one of `tessera {} --help`, found "
        "{}{}",
        path, in_quotes("--" + name),
        hint.empty() ? "" : fmt::format(" (did you mean --{}?)", hint));
  }
  return {};
}

// A flag that takes a value, with the next flag in its place.
std::optional<Error> missing_value(const CLI::App& top,
                                   const std::vector<std::string>& arguments) {
  const CLI::App* command = &top;
  for (size_t i = 0; i + 1 < arguments.size(); ++i) {
    const std::string& next = arguments[i + 1];
    if (!arguments[i].starts_with('-')) {
      for (const CLI::App* sub : command->get_subcommands(nullptr)) {
        if (sub->get_name() == arguments[i]) command = sub;
      }
      continue;
    }
    const CLI::Option* option = command->get_option_no_throw(arguments[i]);
    if (!option || option->get_items_expected_min() == 0) continue;
    if (!next.starts_with("--") && !command->get_option_no_throw(next)) {
      ++i;  // its value
      continue;
    }
    return invalid("cli", "{} must be given a value, found {} in its place",
                   arguments[i], in_quotes(next));
  }
  return {};
}

int run_command(const std::vector<std::string>& arguments) {
  CLI::App app(kAbout, "tessera");
  app.footer(kExamples);
  app.set_version_flag("--version", std::string("tessera ") + kVersion);
  app.require_subcommand(0, 1);
  app.formatter(std::make_shared<Help>());

  struct Entry {
    CLI::App* command = nullptr;
    Work work;
  };
  std::vector<Entry> entries;
  for (auto* add :
       {add_plan, add_show, add_explain, add_export, add_check, add_route,
        add_run, add_choose, add_bridge, add_receipt, add_doctor, add_gate,
        add_compile, add_schedule, add_bench}) {
    Entry e;
    e.work = add(app, e.command);
    entries.push_back(std::move(e));
  }

  if (auto error = missing_value(app, arguments)) {
    return report(*error, arguments);
  }
  try {
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
    app.parse(reversed);
  } catch (const CLI::Success& e) {
    return app.exit(e);  // --help and --version
  } catch (const CLI::ParseError& e) {
    const bool known =
        arguments.empty() || arguments[0].starts_with("-") ||
        std::any_of(entries.begin(), entries.end(), [&](const Entry& entry) {
          return entry.command->get_name() == arguments[0];
        });
    if (!known) {
      return report(invalid("cli", "a command must be one of {}, found {}",
                            command_names(app), in_quotes(arguments[0])),
                    arguments);
    }
    for (const Entry& entry : entries) {
      if (arguments.empty() || arguments[0] != entry.command->get_name()) {
        continue;
      }
      if (auto error = unknown_flag(*entry.command, arguments)) {
        return report(*error, arguments);
      }
    }
    return report(usage_error(e), arguments);
  }
  for (const Entry& entry : entries) {
    if (!entry.command->parsed()) continue;
    auto code = entry.work();
    return code ? *code : report(code.error(), arguments);
  }
  fmt::print("{}", app.help());
  return kOk;
}

int report_lost_output() {
  print_error(
      "tessera: [cli] stdout must take the output, found it closed or "
      "full\n");
  return kRefused;
}

}  // namespace

int run_program(const std::vector<std::string>& arguments) {
  try {
    const int code = run_command(arguments);
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
    return report_lost_output();
  } catch (const std::system_error&) {  // of a print
    return report_lost_output();
  } catch (const std::bad_alloc&) {
    return report({ErrorKind::limit,
                   "[cli] the work must fit this machine's memory, found too "
                   "little"},
                  arguments);
  }
}

}  // namespace tessera::cli
