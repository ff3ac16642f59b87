// lanes/jax_bridge/load_test.cc: good files, and absent or too large ones.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/crc32.h"
#include "base/text.h"
#include "tessera/bridge.h"
#include "tests/temp_folder.h"

namespace tessera::bridge {
namespace {

constexpr char kProgram[] = "tests/golden/bridge/small.mlirbc";
constexpr char kShapes[] = "tests/golden/bridge/small.json";

std::string error_of(const std::string& path, const std::string& shapes) {
  const auto artifact = load_artifact(path, shapes);
  return artifact ? "" : artifact.error().message;
}

TEST(BridgeLoad, BothFilesWhole) {
  const auto artifact = load_artifact(kProgram, kShapes);
  ASSERT_TRUE(artifact.ok()) << artifact.error().message;
  EXPECT_EQ(static_cast<int64_t>(artifact->program.size()),
            artifact->spec.artifact_bytes);
  EXPECT_EQ(crc32(artifact->program), artifact->spec.artifact_crc32);
}

TEST(BridgeLoad, AFileThatIsNotThereOrTooLargeIsNamed) {
  const testing::TempFolder folder;
  const std::string absent = folder.file("absent");
  const std::string none =
      "[file] input must exist, found no file for " + in_quotes(absent);
  EXPECT_EQ(error_of(absent, kShapes), none);
  EXPECT_EQ(error_of(kProgram, absent), none);
  EXPECT_TRUE(error_of(kProgram, kProgram).starts_with("[bridge] "))
      << error_of(kProgram, kProgram);
  // Files that are too large are not read. These are sparse.
  const std::string large = folder.file("large");
  std::ofstream(large).close();
  std::filesystem::resize_file(large, (1 << 24) + 1);
  EXPECT_EQ(error_of(kProgram, large),
            "[file] input must be at most 16777216 bytes, found 16777217 for " +
                in_quotes(large));
  std::filesystem::resize_file(large, (int64_t{1} << 31) + 1);
  EXPECT_EQ(error_of(large, kShapes),
            "[file] input must be at most 2147483648 bytes, found 2147483649 "
            "for " +
                in_quotes(large));
}

}  // namespace
}  // namespace tessera::bridge
