// cli/run/kernel_tile_test.cc: an open tile is the table's for the batch's own
// keys, and any other stays.
#include "cli/run/kernel_tile.h"

#include <gtest/gtest.h>

namespace tessera::cli {
namespace {

struct Took {
  Tile tile;
  std::string by;
};

Took take(const request::RequestFlags& flags, bool backward,
          const std::string& target = "v6e:1x1", int64_t dim = 128,
          Numbers numbers = Numbers::finite) {
  auto loaded = load_request(flags);
  EXPECT_TRUE(loaded.ok()) << loaded.error().message;
  AttentionCall call;
  call.shape = {8, 8, dim, dim, {}, 0};
  call.dtype = Dtype::bf16;
  call.backward = backward;
  XlaOptions options;
  options.numbers = numbers;
  auto by = take_kernel_tile(call, target, options, *loaded);
  EXPECT_TRUE(by.ok()) << by.error().message;
  return {loaded->resolved.request.tile, *by};
}

TEST(KernelTile, AnOpenOneIsTheTables) {
  request::RequestFlags flags;
  flags.masks = {"causal & documents"};
  flags.q_len = "8192";
  flags.docs = "lengths:8192";  // 4,096 keys a query
  Took took = take(flags, false);
  EXPECT_EQ(took.tile, (Tile{512, 512}));
  EXPECT_EQ(took.by, "the table, for 4096 keys a query");
  const Tile forward = took.tile;
  std::string many = "128";
  for (int i = 1; i < 64; ++i) many += ",128";
  flags.docs = "lengths:" + many;  // 64
  took = take(flags, false);
  EXPECT_EQ(took.by, "the table, for 64 keys a query");
  EXPECT_NE(took.tile, forward);
  // Each direction has its own.
  flags.docs = "lengths:2048,2048,2048,2048";  // 1,024
  EXPECT_EQ(take(flags, false).tile, forward);
  took = take(flags, true);
  EXPECT_EQ(took.tile, (Tile{256, 256}));
  EXPECT_EQ(took.by, "the table, for 1024 keys a query");
  // What the mask says by itself.
  flags.masks = {"causal"};
  flags.docs.reset();
  EXPECT_EQ(take(flags, false).tile, forward);
  flags.masks = {"causal & chunk(64)"};
  took = take(flags, false);
  EXPECT_EQ(took.tile, (Tile{256, 256}));
  EXPECT_EQ(took.by,
            "the table, for 64 keys a query; it has no rows of such masks");
}

// Rows are of v6e and of finite numbers.
TEST(KernelTile, ABorrowedRowIsSaidToBeOne) {
  request::RequestFlags flags;
  flags.masks = {"causal"};
  flags.q_len = "8192";
  const auto by = [&](const std::string& target, Numbers numbers) {
    return take(flags, false, target, 128, numbers).by;
  };
  const std::string row = "the table, for 4096 keys a query";
  EXPECT_EQ(by("v6e:1x1", Numbers::finite), row);
  EXPECT_EQ(by("v6e:1x1", Numbers::any),
            row + "; borrowed, for its rows are of finite numbers");
  EXPECT_EQ(by("v5e:2x2", Numbers::any),
            row + "; borrowed, for its rows are of v6e, finite numbers");
  EXPECT_EQ(by("", Numbers::finite), row);
}

// Of the chip that is there; where none is known, the table's.
TEST(KernelTile, AnOpenOneFitsTheChip) {
  request::RequestFlags flags;
  flags.masks = {"causal"};
  flags.q_len = "4096";
  for (const char* target : {"", "v5e:2x2", "v6e:1x1"}) {
    EXPECT_EQ(take(flags, true, target, 256).by.find("fits"),
              std::string::npos);
  }
  const Took took = take(flags, true, "v4:2x2x1", 256);
  EXPECT_TRUE(took.by.ends_with(
      "; the largest of it that fits the vector memory of v4"))
      << took.by;
  EXPECT_LT(took.tile.q, take(flags, true, "v6e:1x1", 256).tile.q);
}

TEST(KernelTile, AGivenOneStays) {
  request::RequestFlags flags;
  flags.masks = {"causal"};
  flags.q_len = "8192";
  flags.tile = "256x128";
  const Took took = take(flags, false);
  EXPECT_EQ(took.tile, (Tile{256, 128}));
  EXPECT_EQ(took.by, "");
}

}  // namespace
}  // namespace tessera::cli
