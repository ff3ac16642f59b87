// cli/arguments.cc: hands commands and arguments to CLI11, and its complaints
// to ours.
#include "cli/arguments.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>
#include <sstream>
#include <string_view>

#include "base/fail.h"
#include "request/numbers.h"
#include "tessera/version.h"

namespace tessera::cli {
namespace {

constexpr size_t kNameColumns = 28;
constexpr size_t kLineColumns = 80;

// Breaks long descriptions at spaces, so that the help fits a terminal.
class Help : public CLI::Formatter {
 public:
  Help() { column_width(kNameColumns); }

  std::string make_option_desc(const CLI::Option* option) const override {
    std::string out;
    size_t line = 0;
    for (std::string_view word :
         request::split(option->get_description(), ' ')) {
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

void add_flag(CLI::App& app, const Flag& flag) {
  CLI::Option* option = nullptr;
  const std::string names = flag.names;
  if (const auto* value = std::get_if<bool*>(&flag.value)) {
    option = app.add_flag(names, **value, flag.about);
  } else {
    std::visit(
        [&](auto* into) { option = app.add_option(names, *into, flag.about); },
        flag.value);
    option->type_name(flag.type);
  }
  if (flag.required) option->required();
  option->group(flag.group);
  // Else a vector takes all that follows, not one value each time.
  if (names.starts_with('-')) option->allow_extra_args(false);
}

void add_command(CLI::App& parent, const Command& command) {
  CLI::App* app = parent.add_subcommand(command.name, command.about);
  if (!command.footer.empty()) app->footer(command.footer);
  for (const Flag& flag : command.flags) add_flag(*app, flag);
}

// In the form of our own errors.
Error usage_error(const CLI::ParseError& e) {
  std::string text = e.what();
  std::replace(text.begin(), text.end(), '\n', ' ');
  return invalid("cli", "arguments must fit the help (--help), found: {}",
                 text);
}

}  // namespace

Result<Parsed> parse_arguments(const Program& program,
                               const std::vector<std::string>& arguments) {
  CLI::App app(program.about, program.name);
  app.footer(program.footer);
  app.set_version_flag("--version", program.name + " " + kVersion);
  app.require_subcommand(0, 1);
  app.formatter(std::make_shared<Help>());
  for (const Command& command : program.commands) add_command(app, command);
  Parsed out;
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::Success& asked) {
    std::ostringstream text;
    app.exit(asked, text);
    out.text = text.str();
    return out;
  } catch (const CLI::ParseError& e) {
    return usage_error(e);
  }
  for (const Command& command : program.commands) {
    if (app.got_subcommand(command.name)) out.command = &command;
  }
  if (!out.command) out.text = app.help();
  return out;
}

}  // namespace tessera::cli
