// receipt/lowering_test.cc: tests that a receipt has a reason if one was due.
#include "receipt/lowering.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "receipt/receipt.h"
#include "receipt/request_fields.h"
#include "tessera/machine.h"

namespace tessera::receipt {
namespace {

// The contradiction of a run of lane xla on a v6e, in tiles of its granule.
std::string contradiction(const std::optional<std::string>& block,
                          const std::optional<std::string>& reason) {
  Receipt r;
  Receipt::Plugin plugin;
  plugin.device = "TPU v6 lite 0";
  r.plugin = plugin;
  r.method = "worklist";
  r.request.tile = "256x256";
  r.request.logical_block = block;
  r.pairs_run = 3 * 256 * 256;
  r.lowering = lowering_of({"v6e", 256, {256, 256}, reason}, r.pairs_run);
  return lowering_contradiction(r, "xla").value_or("");
}

TEST(ReceiptLowering, ALogicalBlockBelowTheGranuleHasAReason) {
  EXPECT_EQ(contradiction({}, {}), "");
  EXPECT_EQ(contradiction("256", {}), "");
  EXPECT_EQ(contradiction("64", "short documents"), "");
  EXPECT_EQ(contradiction("256x64", "short documents"), "");
  const std::string due =
      "lowering.reason must be there for a tile or a logical block below the "
      "granule, and nowhere else";
  EXPECT_EQ(contradiction("64", {}), due);
  EXPECT_EQ(contradiction({}, "short documents"), due);
  EXPECT_EQ(contradiction("512", "short documents"), due);
}

// An open side of a logical block is written as the tile's side.
TEST(ReceiptLowering, HasTheLogicalBlockOfTheRequest) {
  Request request;
  request.tile = {512, 256};
  EXPECT_EQ(request_text(request).logical_block, std::nullopt);
  request.logical_block = {0, 64};
  EXPECT_EQ(request_text(request).logical_block, "512x64");
  request.logical_block = {64, 0};
  EXPECT_EQ(request_text(request).logical_block, "64x256");
}

}  // namespace
}  // namespace tessera::receipt
