// base/out_folder_test.cc: a folder is made, left as it is, or removed again.
#include "base/out_folder.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/fail.h"
#include "base/text.h"
#include "tests/temp_folder.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr OutFolderUse kUse = {"test", "a folder of tests"};

class OutFolder : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return temp_.file(name); }
  // The error; "" if there is none.
  static std::string write(const std::string& folder, bool well = true) {
    const auto e = write_out_folder(kUse, folder, [&]() -> Result<void> {
      EXPECT_TRUE(fs::is_directory(folder) && fs::is_empty(folder));
      if (!well) return invalid("test", "it broke");
      std::ofstream(folder + "/file") << "written";
      return {};
    });
    return e ? "" : e.error().message;
  }

  const testing::TempFolder temp_;
};

TEST_F(OutFolder, IsNewOrEmpty) {
  EXPECT_EQ(write(path("new")), "");
  EXPECT_EQ(write(path("more/and/deep/")), "");
  fs::create_directory(path("empty"));
  fs::create_directory_symlink(path("empty"), path("way"));
  EXPECT_EQ(write(path("way")), "");
  EXPECT_TRUE(fs::exists(path("empty/file")));
  std::ofstream(path("new/file")) << "mine";
  fs::create_directories(path("full/inner"));
  for (const char* name : {"new", "empty", "way", "full"}) {
    EXPECT_EQ(write(path(name)),
              "[test] a folder of tests must be new or empty, found files in " +
                  in_quotes(path(name)));
  }
  std::string kept;
  std::ifstream(path("new/file")) >> kept;
  EXPECT_EQ(kept, "mine");
}

TEST_F(OutFolder, IsTakenBackWhereNothingCameOfIt) {
  fs::create_directory(path("old"));
  for (const char* name : {"new", "new/deep", "old/deep", "old"}) {
    EXPECT_EQ(write(path(name), false), "[test] it broke") << name;
  }
  EXPECT_FALSE(fs::exists(path("new")));
  EXPECT_TRUE(fs::exists(path("old")));
  EXPECT_TRUE(fs::is_empty(path("old")));
}

TEST_F(OutFolder, IsNoFileAndNoLinkToNothing) {
  std::ofstream(path("file")) << "mine";
  fs::create_symlink(path("absent"), path("link"));
  for (const std::string& name : {path("file"), path("file/in"), path("link"),
                                  path("link/in"), std::string()}) {
    const std::string found = write(name);
    const bool is_link = name.starts_with(path("link"));
    EXPECT_EQ(leads_to_nothing(name), is_link) << name;
    EXPECT_TRUE(found.starts_with(
        std::string("[test] a folder of tests must be one that can be made "
                    "and read, found ") +
        (is_link ? "a link to nothing for '" : "\"")))
        << found;
  }
  EXPECT_TRUE(fs::is_regular_file(path("file")));
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_FALSE(fs::exists(path("absent")));
}

}  // namespace
}  // namespace tessera
