// cli/arguments.cc: parses arguments with CLI11 and converts its errors.
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

// Breaks a text at spaces, and a word longer than a line after a comma. Lines
// after the first are indented.
std::string wrapped(std::string_view text, size_t columns, size_t indent) {
  const std::string new_line = "\n" + std::string(indent, ' ');
  std::string out;
  size_t line = 0;
  for (std::string_view word : request::split(text, ' ')) {
    if (line > 0 && line + 1 + word.size() > columns) {
      out += new_line;
      line = 0;
    } else if (line > 0) {
      out += ' ';
      ++line;
    }
    while (line == 0 && word.size() > columns) {
      const size_t comma = word.rfind(',', columns - 1);
      if (comma == std::string_view::npos) break;
      out += word.substr(0, comma + 1);
      out += new_line;
      word.remove_prefix(comma + 1);
    }
    out += word;
    line += word.size();
  }
  return out;
}

// Fills paragraphs to the width of the help; indented lines are not changed.
std::string filled(std::string_view text) {
  std::string out, paragraph;
  const auto end_paragraph = [&] {
    if (paragraph.empty()) return;
    out += wrapped(paragraph, kLineColumns, 0) + "\n";
    paragraph.clear();
  };
  for (const std::string_view line : request::split(text, '\n')) {
    if (!line.empty() && line[0] != ' ') {
      if (!paragraph.empty()) paragraph += ' ';
      paragraph += line;
      continue;
    }
    end_paragraph();
    out += line;
    out += '\n';
  }
  end_paragraph();
  out.pop_back();  // the help prints the last newline
  return out;
}

// A name and its description, in the columns of the flags.
std::string in_columns(std::string_view name, std::string_view about) {
  constexpr size_t kIndent = 2;
  std::string out = std::string(kIndent, ' ') +
                    wrapped(name, kLineColumns - 2 * kIndent, 2 * kIndent);
  if (about.empty()) return out;
  const size_t line = out.size() - (out.rfind('\n') + 1);
  out += line < kNameColumns ? std::string(kNameColumns - line, ' ')
                             : "\n" + std::string(kNameColumns, ' ');
  return out + wrapped(about, kLineColumns - kNameColumns, kNameColumns);
}

std::string footer_of(const Command& command) {
  std::string out = filled(command.footer);
  if (command.json_fields.empty()) return out;
  out += out.empty() ? "JSON fields:" : "\n\nJSON fields:";
  for (const JsonField& field : command.json_fields) {
    out += "\n" + in_columns(field.names, field.about);
  }
  return out;
}

// Breaks long descriptions, so that the help fits a terminal.
class Help : public CLI::Formatter {
 public:
  Help() { column_width(kNameColumns); }

  std::string make_option_desc(const CLI::Option* option) const override {
    return wrapped(option->get_description(), kLineColumns - kNameColumns, 0);
  }
  std::string make_subcommand(const CLI::App* command) const override {
    return in_columns(command->get_name(), command->get_description()) + "\n";
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
  // Otherwise CLI11 gives a vector all arguments that follow, not one value for
  // each use of the flag.
  if (names.starts_with('-')) option->allow_extra_args(false);
}

void add_command(CLI::App& parent, const Command& command) {
  CLI::App* app = parent.add_subcommand(command.name, command.about);
  app->footer(footer_of(command));
  for (const Flag& flag : command.flags) add_flag(*app, flag);
}

// Converts an error of CLI11.
Error usage_error(const CLI::ParseError& e) {
  std::string text = e.what();
  std::replace(text.begin(), text.end(), '\n', ' ');
  return invalid("cli", "arguments must fit the help (--help), found: {}",
                 text);
}

// An empty --plugin is refused, because an empty name means the default plugin.
Result<void> check_plugin_names(const Command& command) {
  for (const Flag& flag : command.flags) {
    if (flag.names != std::string_view("--plugin")) continue;
    const auto& name = *std::get<std::optional<std::string>*>(flag.value);
    if (!name || !name->empty()) continue;
    return invalid("cli", "--plugin must be a file or a known name, found ''");
  }
  return {};
}

}  // namespace

Result<Parsed> parse_arguments(const Program& program,
                               const std::vector<std::string>& arguments) {
  CLI::App app(program.about, program.name);
  app.footer(filled(program.footer));
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
  if (!out.command) {
    out.text = app.help();
  } else if (auto e = check_plugin_names(*out.command); !e) {
    return e.error();
  }
  return out;
}

}  // namespace tessera::cli
