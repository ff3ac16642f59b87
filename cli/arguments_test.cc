// cli/arguments_test.cc: properties of the arguments of every command.
#include "cli/arguments.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/program.h"

namespace tessera::cli {
namespace {

// Values for the required flags, so that no missing flag causes the error.
testing::Arguments with_required(const Command& command) {
  testing::Arguments out = {command.name};
  for (const Flag& flag : command.flags) {
    if (!flag.required) continue;
    const std::string names = flag.names;
    if (names.starts_with('-'))
      out.push_back(names.substr(names.rfind(',') + 1));
    out.emplace_back("x");
  }
  return out;
}

TEST(Arguments, NoCommandTakesAPluginWithoutAName) {
  int commands = 0;
  for (const cli::Program& whole :
       {tessera_program(), bench::bench_program()}) {
    for (const Command& command : whole.commands) {
      const bool has_plugin =
          std::ranges::any_of(command.flags, [](const Flag& f) {
            return f.names == std::string_view("--plugin");
          });
      if (!has_plugin) continue;
      commands += 1;
      testing::Arguments arguments = with_required(command);
      arguments.insert(arguments.end(), {"--plugin", ""});
      const auto none = parse_arguments(whole, arguments);
      EXPECT_EQ(none ? "" : none.error().message,
                "[cli] --plugin must be a file or a known name, found ''")
          << command.name;
      arguments.back() = "x";
      EXPECT_TRUE(parse_arguments(whole, arguments).ok()) << command.name;
    }
  }
  EXPECT_GE(commands, 10);
}

}  // namespace
}  // namespace tessera::cli
