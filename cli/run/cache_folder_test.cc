// cli/run/cache_folder_test.cc: the order of flag and environment variables.
#include "cli/run/cache_folder.h"

#include <gtest/gtest.h>

#include "tests/variable.h"

namespace tessera::cli {
namespace {

struct CacheFolder : ::testing::Test {
  const tessera::testing::Variable cache{"TESSERA_CACHE", nullptr};
  const tessera::testing::Variable xdg{"XDG_CACHE_HOME", nullptr};
  const tessera::testing::Variable home{"HOME", nullptr};
};

TEST_F(CacheFolder, TheFirstThatSaysWhere) {
  EXPECT_EQ(*cache_folder({}), "");
  home.set("/users/ada");
  EXPECT_EQ(*cache_folder({}), "/users/ada/.cache/tessera");
  xdg.set("/caches");
  EXPECT_EQ(*cache_folder({}), "/caches/tessera");
  cache.set("here");
  EXPECT_EQ(*cache_folder({}), "here");
  EXPECT_EQ(*cache_folder("there"), "there");
}

TEST_F(CacheFolder, OffIsNowhere) {
  home.set("/users/ada");
  EXPECT_EQ(*cache_folder("off"), "");
  cache.set("off");
  EXPECT_EQ(*cache_folder({}), "");
  EXPECT_EQ(*cache_folder("./off"), "./off");
}

TEST_F(CacheFolder, AFileIsNone) {
  EXPECT_EQ(cache_folder("HACKING.md").error().message,
            "[cli] --cache must be a folder or off, found a file for "
            "'HACKING.md'");
  EXPECT_EQ(*cache_folder("docs"), "docs");
  EXPECT_EQ(*cache_folder("nothing/there"), "nothing/there");
}

TEST_F(CacheFolder, EmptyOrRelativeVariablesAreAbsent) {
  cache.set("");
  xdg.set("caches");
  home.set("/users/ada");
  EXPECT_EQ(*cache_folder({}), "/users/ada/.cache/tessera");
  home.set("");
  EXPECT_EQ(*cache_folder({}), "");
  EXPECT_FALSE(cache_folder("").ok());
}

}  // namespace
}  // namespace tessera::cli
