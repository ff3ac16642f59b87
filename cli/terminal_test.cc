// cli/terminal_test.cc: when a picture is printed with colors.
#include "cli/terminal.h"

#include <gtest/gtest.h>

namespace tessera::cli {
namespace {

TEST(Terminal, ShowsColorUnlessToldOtherwise) {
  EXPECT_TRUE(shows_color(true, nullptr, nullptr));
  EXPECT_TRUE(shows_color(true, nullptr, "xterm-256color"));
  EXPECT_TRUE(shows_color(true, "", "xterm"));
  EXPECT_TRUE(shows_color(true, nullptr, "dumber"));
  EXPECT_FALSE(shows_color(true, "1", "xterm"));
  EXPECT_FALSE(shows_color(true, "0", "xterm"));
  EXPECT_FALSE(shows_color(true, nullptr, "dumb"));
  EXPECT_FALSE(shows_color(true, "", "dumb"));
  EXPECT_FALSE(shows_color(false, nullptr, "xterm"));
}

}  // namespace
}  // namespace tessera::cli
