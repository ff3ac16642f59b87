#include "cli/given_flags.h"

#include <gtest/gtest.h>

namespace tessera::cli {
namespace {

TEST(GivenFlags, TheFirstThatIsGivenIsNamed) {
  EXPECT_EQ(first_given({{"--a", false}, {"--b", true}, {"--c", true}}), "--b");
  EXPECT_EQ(first_given({{"--a", false}}), "");
  EXPECT_EQ(first_given({}), "");
}

TEST(GivenFlags, AFlagOfACommandIsGivenByItsValue) {
  bool json = false;
  std::string name;
  std::optional<std::string> out;
  std::vector<std::string> masks;
  Command command;
  add_flags(command, {{"--json", &json},
                      {"--name", &name},
                      {"-o,--out", &out},
                      {"--mask", &masks}});
  EXPECT_EQ(first_given_of(command), "");
  masks.emplace_back("causal");
  EXPECT_EQ(first_given_of(command), "--mask");
  out = "";  // given, though empty
  EXPECT_EQ(first_given_of(command), "--out");
  name = "a";
  EXPECT_EQ(first_given_of(command), "--name");
  json = true;
  EXPECT_EQ(first_given_of(command), "--json");
}

}  // namespace
}  // namespace tessera::cli
