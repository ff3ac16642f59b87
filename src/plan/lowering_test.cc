// plan/lowering_test.cc: each generation's granule, the work that a tile pays,
// and the required lowering reasons.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "tessera/machine.h"

namespace tessera {
namespace {

using Reason = std::optional<std::string>;

std::string why(const Tile& tile, std::string_view chip, const Reason& reason) {
  const auto made = lower_tile("here", tile, {0, 0}, *find_chip(chip), reason);
  return made ? std::string() : made.error().message;
}

TEST(Chips, EachGenerationHasItsMatrixUnitAndItsKind) {
  const std::map<std::string_view, std::pair<int64_t, std::string_view>> due = {
      {"v4", {128, "TPU v4"}},
      {"v5e", {128, "TPU v5 lite"}},
      {"v5p", {128, "TPU v5"}},
      {"v6e", {256, "TPU v6 lite"}},
      {"tpu7x", {256, "TPU7x"}}};
  EXPECT_EQ(chips().size(), due.size());
  for (const Chip& chip : chips()) {
    const auto& [granule, kind] = due.at(chip.name);
    EXPECT_EQ(find_chip(chip.target)->granule, granule) << chip.name;
    EXPECT_EQ(chip_of_device(kind)->name, chip.name);
    EXPECT_EQ(chip_of_device(fmt::format("{} 12", kind))->name, chip.name);
  }
  for (const char* other : {"", " ", "0", "cpu 0", "TPU", "TPU v5 ", "TPU v5 l",
                            "TPU v5 lite 0 1", "TPU v99 0", "tpu v4"}) {
    EXPECT_FALSE(chip_of_device(other)) << other;
  }
}

// Counted over the granules that a tile touches.
TEST(PaidWork, IsOfWholeGranules) {
  for (const int64_t granule : {128, 256}) {
    for (int64_t q = 8; q <= 600; q += 8) {
      for (const int64_t kv : {8, 120, 128, 136, 256, 264, 512}) {
        const Tile tile = {q, kv};
        int64_t granules = 0;
        for (int64_t i = 0; i < q; i += granule) {
          for (int64_t j = 0; j < kv; j += granule) ++granules;
        }
        const PaidWork work = paid_work(tile, granule, 3);
        EXPECT_EQ(work.pairs, 3 * q * kv);
        EXPECT_EQ(work.paid, 3 * granules * granule * granule);
        EXPECT_GE(work.factor(), 1);
        EXPECT_EQ(work.factor() == 1, q % granule == 0 && kv % granule == 0);
      }
    }
  }
  EXPECT_EQ(paid_work({128, 128}, 256).factor(), 4);
  EXPECT_EQ(paid_work({128, 128}, 256, 0).factor(), 1);
}

// Both sides of the granule, for every generation and side of a tile.
TEST(LowerTile, ATileBelowTheGranuleNeedsAReason) {
  for (const Chip& chip : chips()) {
    const int64_t g = chip.granule;
    for (const Tile& tile : {Tile{g, g}, {g, 4 * g}, {g + 8, g + 8}}) {
      EXPECT_EQ(why(tile, chip.name, {}), "");
      EXPECT_EQ(
          why(tile, chip.name, "because"),
          fmt::format("[here] a lowering reason goes with a tile or a logical "
                      "block below the granule of {}, {}x{}, found one for "
                      "{}x{}",
                      chip.name, g, g, tile.q, tile.kv));
    }
    for (const Tile& tile : {Tile{g - 8, g}, {g, g - 8}, {8, 4 * g}, {8, 8}}) {
      EXPECT_EQ(why(tile, chip.name, "because"), "");
      const std::string none = why(tile, chip.name, {});
      EXPECT_TRUE(none.starts_with(fmt::format(
          "[here] a tile below the granule of {}, {}x{}, must come with a "
          "lowering reason, found none for {}x{}, which pays ",
          chip.name, g, g, tile.q, tile.kv)))
          << none;
      const auto made = lower_tile("here", tile, {0, 0}, chip, "because");
      EXPECT_EQ(made->chip, chip.name);
      EXPECT_EQ(made->granule, g);
      EXPECT_EQ(made->tile, tile);
      EXPECT_EQ(made->reason, "because");
    }
  }
  EXPECT_TRUE(why({128, 128}, "v6e", {}).ends_with("pays 4 times its work"));
  EXPECT_EQ(why({128, 128}, "v5e", {}), "");
}

// The logical block may be smaller than the tile that runs.
TEST(LowerTile, ALogicalBlockBelowTheGranuleNeedsAReason) {
  const Chip chip = *find_chip("v6e");
  const auto made = [&](const Tile& block, const Reason& reason) {
    const auto lowered = lower_tile("here", {512, 256}, block, chip, reason);
    return lowered ? std::string() : lowered.error().message;
  };
  for (const Tile& block : {Tile{0, 0}, {256, 256}, {512, 0}, {300, 700}}) {
    EXPECT_EQ(made(block, {}), "");
    EXPECT_EQ(made(block, "because"),
              "[here] a lowering reason goes with a tile or a logical block "
              "below the granule of v6e, 256x256, found one for 512x256");
  }
  for (const Tile& block : {Tile{0, 255}, {64, 0}, {64, 64}, {1024, 128}}) {
    EXPECT_EQ(made(block, "because"), "");
    EXPECT_TRUE(made(block, {}).starts_with(
        "[here] a logical block below the granule of v6e, 256x256, must come "
        "with a lowering reason, found none for "))
        << made(block, {});
  }
  EXPECT_TRUE(made({64, 0}, {}).ends_with(" for 64x256 in tiles of 512x256"));
}

TEST(LoweringReason, IsALineOfText) {
  const std::string text = " must be a line of printable UTF-8, found ";
  const std::pair<std::string, std::string> cases[] = {
      {"", " must be of 1 to 200 bytes, found 0"},
      {std::string(200, 'a'), ""},
      {std::string(201, 'a'), " must be of 1 to 200 bytes, found 201"},
      {"pr\xc3\xbc"
       "fen: \xe6\x97\xa5",
       ""},
      {"   ", text + "'   '"},
      {"two\nlines", text + "'two\\x0alines'"},
      {std::string("a\0b", 3), text + "'a\\x00b'"},
      {"tab\t", text + "'tab\\x09'"},
      {"\xff", text + "'\\xff'"},
      {"\x7f", text + "'\\x7f'"}};
  for (const auto& [reason, due] : cases) {
    const auto told = check_lowering_reason("here", reason);
    EXPECT_EQ(told ? "" : told.error().message,
              due.empty() ? "" : "[here] a lowering reason" + due);
    // The same for a tile that needs a reason.
    EXPECT_EQ(why({8, 8}, "v6e", reason), told ? "" : told.error().message);
  }
}

}  // namespace
}  // namespace tessera
