// data/pack_folder_formats_test.cc: a folder of rows with files in other
// formats than .safetensors.
#include <gtest/gtest.h>

#include <filesystem>

#include "data/arrow_component.h"
#include "data/row_files.h"
#include "tests/full_disk.h"
#include "tests/pack_folder.h"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;

class PackFolderFormats : public testing::PackFolder {};

// A run cannot continue a Parquet file, but it can a folder of such files.
TEST_F(PackFolderFormats, GoesOnInFilesOfEveryFormat) {
  if (auto found = arrow_component(); !found) {
    GTEST_SKIP() << found.error().message;
  }
  options_.format = "safetensors";
  ASSERT_TRUE(pack("plain"));
  auto plain = RowFiles::open(out("plain"));
  ASSERT_TRUE(plain) << plain.error().message;
  for (const std::string format : {"parquet", "arrow"}) {
    options_.format = format;
    const auto whole = pack("whole");
    ASSERT_TRUE(whole) << whole.error().message;
    for (const auto& [name, bytes] : files_of(out("whole"))) {
      EXPECT_TRUE(name.ends_with("." + format)) << name;
    }
    auto rows = RowFiles::open(out("whole"));
    ASSERT_TRUE(rows) << rows.error().message;
    ASSERT_EQ(rows->rows(), plain->rows());
    EXPECT_EQ(*rows->take(0, rows->rows()), *plain->take(0, plain->rows()));
    ASSERT_FALSE(pack_files(3));
    int64_t seen = 0;
    options_.each = [&](const Rows& some) -> Result<void> {
      seen += some.rows;
      return {};
    };
    const auto packed = pack();
    options_.each = {};
    ASSERT_TRUE(packed) << packed.error().message;
    EXPECT_EQ(packed->resumed_files, 3);
    EXPECT_EQ(seen, rows->rows());
    expect_same(*packed, *whole);
    fs::remove_all(out());
    fs::remove_all(out("whole"));
    // A run with another format may start over, also if a run was killed while
    // it put files in place and no journal tells its format.
    for (const bool damaged : {false, true}) {
      options_.format = format;
      ASSERT_FALSE(pack_files(3));
      options_.format = "safetensors";
      refuses("format safetensors for " + format);
      if (damaged) {
        const std::string first = "rows-00000." + format;
        fs::rename(aside(first), fs::path(out()) / first);
        ASSERT_TRUE(write_file(aside("journal"), "damaged"));
      }
      options_.restart = true;
      const auto anew = pack();
      options_.restart = false;
      ASSERT_TRUE(anew) << anew.error().message;
      EXPECT_EQ(files_of(out()), files_of(out("plain")));
      fs::remove_all(out());
    }
  }
}

// With every library, the error has the system's reason.
TEST_F(PackFolderFormats, AFullDiskIsToldAsTheSystemSays) {
  if (!arrow_component()) GTEST_SKIP() << "no Arrow";
  for (const char* format : {"safetensors", "parquet", "arrow"}) {
    options_.format = format;
    const testing::FullDisk disk(1000);
    ASSERT_TRUE(disk.holds());
    const auto packed = pack(format);
    ASSERT_FALSE(packed) << format;
    EXPECT_NE(packed.error().message.find("File too large"), std::string::npos)
        << packed.error().message;
  }
}

TEST_F(PackFolderFormats, AFormatIsOneOfThree) {
  options_.format = "csv";
  const auto packed = pack();
  ASSERT_FALSE(packed);
  EXPECT_EQ(packed.error().message,
            "[data] files of a folder of rows must be one of safetensors, "
            "parquet, arrow, found 'csv' for them");
  EXPECT_FALSE(fs::exists(out()));
}

}  // namespace
}  // namespace tessera::data
