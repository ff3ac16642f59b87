// cli/run/kernel_tile_test.cc: an open tile is the table's for the batch's own
// keys, where our TPU kernels were named or chosen, and any other stays.
#include "cli/run/kernel_tile.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/files.h"
#include "cli/receipt/second_run.h"
#include "cli/run/run.h"
#include "lanes/mosaic/settings.h"
#include "lanes/xla/writer.h"
#include "receipt/read.h"
#include "run/verify.h"
#include "tessera/machine.h"
#include "tessera/mosaic.h"
#include "tests/plugins.h"
#include "tests/stablehlo_kernel.h"
#include "tests/temp_folder.h"
#include "tests/variable.h"

namespace tessera::cli {
namespace {

struct Took {
  Tile tile;
  std::string by;
};

Took take(const request::RequestFlags& flags, bool backward,
          const std::string& target = "v6e:1x1", int64_t dim = 128) {
  auto loaded = load_request(flags);
  EXPECT_TRUE(loaded.ok()) << loaded.error().message;
  AttentionCall call;
  call.shape = {8, 8, dim, dim, {}, 0};
  call.dtype = Dtype::bf16;
  call.backward = backward;
  auto by = take_kernel_tile(call, target, *loaded);
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
  EXPECT_EQ(open.tile_by, "the table, for 1024 keys a query");
  EXPECT_EQ(batch.request().tile, (Tile{512, 512}));
  EXPECT_EQ(batch.plan().legal_pairs, before.plan().legal_pairs);
  // The choice is that of the plan that runs: two triangles of 4 tiles a side.
  EXPECT_NE(open.choice.reason.find("20 of 64 tiles"), std::string::npos)
      << open.choice.reason;

  batch = before;
  const TiledChoice said = chosen(false, batch);
  EXPECT_EQ(said.choice.lane, LaneId::mosaic);
  EXPECT_EQ(said.tile_by, "");
  EXPECT_EQ(batch.request().tile, (Tile{256, 256}));
}

// At 256 tiles of two corners are empty; at 512 none is, and the compiler's own
// program would run it.
TEST(KernelTile, ABatchThatWouldLeaveTheLaneStays) {
  const AttentionCall call = call_of_heads(8);
  OwnedBatch batch = batch_of("window(3300, 3300)", 4096, {});
  const Tile tile = kernel_tile(batch, call, "v6e:1x1").tile;
  ASSERT_NE(tile, (Tile{256, 256}));
  OwnedBatch larger = batch_of("window(3300, 3300)", 4096, {}, tile);
  EXPECT_EQ(chosen(false, larger).choice.lane, LaneId::xla);
  const TiledChoice stays = chosen(true, batch);
  EXPECT_EQ(stays.choice.lane, LaneId::mosaic);
  EXPECT_EQ(stays.tile_by, "");
  EXPECT_EQ(batch.request().tile, (Tile{256, 256}));
}

// What our kernel of that tile computes, in its place: a plugin that says it is
// a TPU takes the program from this file.
Result<void> write_plain_program(const std::string& path, const Tile& tile) {
  const OwnedBatch batch =
      batch_of("causal & documents", 1024, std::vector<int32_t>(1024, 0), tile);
  Request request = batch.request();
  request.ceilings.max_steps = make_contract(batch)->steps;
  const AttentionCall call = call_of_heads(2);
  const std::string target(find_chip("v6e")->target);
  const MosaicOptions options =
      mosaic::fit_passes(request, batch.facts(), call, target, {}, Numbers::any)
          .setting.options;
  const auto kernel =
      make_mosaic_kernel(request, batch.facts(), call, target, options);
  if (!kernel) return kernel.error();
  xla::Writer w(testing::StablehloKernel::arguments(*kernel));
  return write_file(
      path,
      w.module("plain", testing::StablehloKernel(w, *kernel, false).results()));
}

// From flags to a receipt that verify agrees with.
TEST(KernelTileRun, TheRulesChoiceRunsAtIt) {
  TESSERA_NEEDS_PLUGINS();
  const auto real = testing::real_plugin("xla_cpu_pjrt");
  if (testing::is_absent(real)) GTEST_SKIP() << real.error().message;
  ASSERT_TRUE(real.ok()) << real.error().message;
  const testing::TempFolder folder;
  const std::string program = folder.file("program");
  const testing::Variable wrapped("TESSERA_TEST_WRAPPED_PLUGIN",
                                  (*real)->path().c_str());
  const testing::Variable replaces("TESSERA_TEST_TPU_PROGRAM", program.c_str());
  const auto written = write_plain_program(program, {512, 512});
  ASSERT_TRUE(written.ok()) << written.error().message;

  const std::string tpu = testing::fake_plugin("tpu");
  RunFlags flags;
  flags.request.masks = {"causal & documents"};
  flags.request.q_len = "1024";
  flags.request.docs = "lengths:1024";
  flags.heads = "2";
  flags.dtype = "bf16";
  flags.cache = "off";
  flags.check = true;
  auto options = read_run_options(flags);
  ASSERT_TRUE(options.ok()) << options.error().message;
  options->lanes.machine = tpu_machine(tpu);
  const auto ran = run_request(flags, std::move(*options));
  ASSERT_TRUE(ran.ok()) << ran.error().message;
  const receipt::Receipt& r = ran->receipt;
  EXPECT_EQ(r.lane.requested, "auto");
  EXPECT_EQ(r.lane.executed, "mosaic");
  EXPECT_EQ(r.request.tile, "512x512");
  EXPECT_EQ(r.settings.at("tile"),
            "the table of heads alone, for 512 keys a query");
  EXPECT_EQ(ran->plan.tiles, 4);
  EXPECT_TRUE(r.check.passed) << r.check.worst;

  const auto claim = receipt::parse_receipt(receipt::receipt_json(r));
  ASSERT_TRUE(claim.ok()) << claim.error().message;
  const auto verdict =
      run::verify_receipt(*claim, [&](const receipt::Receipt& claimed) {
        return second_run(claimed, tpu);
      });
  ASSERT_TRUE(verdict.ok()) << verdict.error().message;
  EXPECT_EQ(verdict->contradictions, std::vector<std::string>());
  EXPECT_TRUE(verdict->wrong.empty()) << verdict->wrong.front().field;
}

}  // namespace
}  // namespace tessera::cli
