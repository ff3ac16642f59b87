// run/kernel_tile_test.cc: tests that an open tile is the table's for the
// batch's keys if our TPU kernels run, and that other tiles stay.
#include "run/kernel_tile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tessera/machine.h"

namespace tessera::run {
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
  // Each direction has its own tile.
  flags.docs = "lengths:2048,2048,2048,2048";  // 1,024
  EXPECT_EQ(take(flags, false).tile, forward);
  took = take(flags, true);
  EXPECT_EQ(took.tile, (Tile{256, 256}));
  EXPECT_EQ(took.by, "the table, for 1024 keys a query");
  // These masks give the number of keys without facts.
  flags.masks = {"causal"};
  flags.docs.reset();
  EXPECT_EQ(take(flags, false).tile, forward);
  flags.masks = {"causal & chunk(64)"};
  took = take(flags, false);
  EXPECT_EQ(took.tile, (Tile{256, 256}));
  EXPECT_EQ(took.by,
            "the table, for 64 keys a query; it has no rows of such masks");
}

// Rows of the table are for v6e and finite numbers.
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

// An open tile fits the machine's chip; without a known chip it is the table's.
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

OwnedBatch batch_of(const char* mask, int64_t tokens,
                    const std::vector<int32_t>& ids, Tile tile = {256, 256}) {
  Request request;
  request.masks = {*parse_mask(mask)};
  request.q_len = request.kv_len = tokens;
  request.tile = tile;
  OwnedFacts facts;
  if (!ids.empty()) facts.doc_ids = ids;
  return *OwnedBatch::make(request, std::move(facts));
}

std::vector<int32_t> two_documents(int64_t tokens) {
  std::vector<int32_t> out(static_cast<size_t>(tokens), 0);
  std::fill(out.begin() + tokens / 2, out.end(), 1);
  return out;
}

AttentionCall call_of_heads(int64_t heads) {
  AttentionCall out;
  out.shape = {heads, heads, 128, 128, {}, 0};
  out.dtype = Dtype::bf16;
  return out;
}

Machine tpu_machine(const std::string& plugin) {
  return {"A CPU", 2, {Isa::portable}, true, true, {{plugin, "tpu", 1, "v6e"}}};
}

TiledChoice chosen(bool open_tile, OwnedBatch& batch) {
  const AttentionCall call = call_of_heads(8);
  const Machine machine = tpu_machine("libtpu");
  const LaneChooser chooser = {
      [&](const Batch& of) {
        return choose(
            features_of(of.request(), of.facts(), call.shape, {call.dtype}),
            plan_facts(of.plan()), machine);
      },
      [&](const Choice& of) { return target_of(machine, of.plugin); }};
  auto out = choose_and_tile(chooser, call, open_tile, batch);
  EXPECT_TRUE(out.ok()) << out.error().message;
  return *out;
}

TEST(KernelTile, TheRulesChoiceTakesIt) {
  const OwnedBatch before =
      batch_of("causal & documents", 4096, two_documents(4096));
  OwnedBatch batch = before;
  const TiledChoice open = chosen(true, batch);
  EXPECT_EQ(open.choice.lane, LaneId::mosaic);
  EXPECT_EQ(open.tile_by,
            "the table, for 1024 keys a query; borrowed, for its rows are of "
            "finite numbers");
  EXPECT_EQ(batch.request().tile, (Tile{512, 512}));
  EXPECT_EQ(batch.plan().legal_pairs, before.plan().legal_pairs);
  // The choice is made from the plan that runs: two triangles with 4 tiles a
  // side.
  EXPECT_NE(open.choice.reason.find("20 of 64 tiles"), std::string::npos)
      << open.choice.reason;

  batch = before;
  const TiledChoice said = chosen(false, batch);
  EXPECT_EQ(said.choice.lane, LaneId::mosaic);
  EXPECT_EQ(said.tile_by, "");
  EXPECT_EQ(batch.request().tile, (Tile{256, 256}));
}

// With tiles of 256 those in two corners are empty. With tiles of 512 none is,
// so the compiler's own program would run the batch.
TEST(KernelTile, ABatchThatWouldLeaveTheLaneStays) {
  const AttentionCall call = call_of_heads(8);
  OwnedBatch batch = batch_of("window(3300, 3300)", 4096, {});
  const Tile tile = kernel_tile(batch, call, "v6e:1x1", {}).tile;
  ASSERT_NE(tile, (Tile{256, 256}));
  OwnedBatch larger = batch_of("window(3300, 3300)", 4096, {}, tile);
  EXPECT_EQ(chosen(false, larger).choice.lane, LaneId::xla);
  const TiledChoice stays = chosen(true, batch);
  EXPECT_EQ(stays.choice.lane, LaneId::mosaic);
  EXPECT_EQ(stays.tile_by, "");
  EXPECT_EQ(batch.request().tile, (Tile{256, 256}));
}

}  // namespace
}  // namespace tessera::run
