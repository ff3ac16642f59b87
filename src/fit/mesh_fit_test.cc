// fit/mesh_fit_test.cc: compares budgets of a mesh's programs with what the
// vendor's compiler reports, for four chips; and tests remedies.
#include <gtest/gtest.h>

#include <algorithm>

#include "pjrt/compile.h"
#include "tessera/fit.h"
#include "tests/attention_case.h"
#include "tests/plugins.h"
#include "tests/random_case.h"

namespace tessera {
namespace {

struct Case {
  const char* mask;
  const char* mesh;
  Balance balance;
  int64_t batch, tokens, dim;
  TileExchange exchange = TileExchange::rounds;
  int64_t kv_heads = 2;
  AttentionShape shape() const {
    AttentionShape out;
    out.heads = 8;
    out.kv_heads = kv_heads;
    out.head_dim = out.v_head_dim = dim;
    return out;
  }
};

int64_t bytes_of(const PassMemory& pass, std::string_view name) {
  int64_t out = 0;
  for (const MemoryPart& p : pass.scratch) {
    if (p.name == name) out += p.bytes;
  }
  return out;
}
// The margin that is added to what is counted.
int64_t margin_of(const PassMemory& pass) {
  return bytes_of(pass, "margin of exchanges");
}

// Rows of two documents if the mask names documents; else there are no ids.
Result<OwnedBatch> batch_of(const Case& c, Tile tile) {
  Request request;
  request.masks = {*parse_mask(c.mask)};
  request.batch = c.batch;
  request.q_len = request.kv_len = c.tokens;
  request.tile = tile;
  OwnedFacts facts;
  if (request.masks[0].names.documents) {
    facts.doc_ids.emplace();
    for (int64_t i = 0; i < c.batch * c.tokens; ++i) {
      facts.doc_ids->push_back(i % c.tokens < c.tokens * 5 / 8 ? 0 : 1);
    }
  }
  return OwnedBatch::make(std::move(request), facts);
}

MeshFitCall asked_of(const Case& c, const Batch& batch, LaneId lane) {
  MeshFitCall out;
  out.batch = &batch;
  out.mesh = *parse_mesh(c.mesh);
  out.options.balance = c.balance;
  out.options.exchange = c.exchange;
  out.call.shape = c.shape();
  out.call.dtype = Dtype::bf16;
  out.call.backward = true;
  out.lane = lane;
  out.chip = "v6e:2x2";
  return out;
}

class MeshFitCompile : public ::testing::Test {
 protected:
  void SetUp() override {
    auto plugin = testing::real_plugin("libtpu");
    if (testing::is_absent(plugin)) GTEST_SKIP() << plugin.error().message;
    ASSERT_TRUE(plugin.ok()) << plugin.error().message;
    plugin_ = *plugin;
  }

  Result<pjrt::MemoryStats> compile(const std::string& program) {
    auto topology = pjrt::make_topology(*plugin_, "v6e:2x2");
    if (!topology) return topology.error();
    auto spread = pjrt::options_of(*topology, program);
    if (!spread) return spread.error();
    auto executable = pjrt::compile(*topology, program, *spread);
    if (!executable) return executable.error();
    return executable->memory();
  }

  // Arguments and results must be equal to the byte. Our total must not be
  // below libtpu's; without its margin it must be within 10%, apart from what
  // the core may hold. `large` programs have nothing in the core and must be
  // within a quarter.
  void compare(const MeshFitCall& asked, bool large = false) {
    const auto budget = make_budget(asked);
    ASSERT_TRUE(budget.ok()) << budget.error().message;
    for (const bool backward : {false, true}) {
      const PassMemory& ours = backward ? *budget->backward : budget->forward;
      const auto program = program_text(asked, backward);
      ASSERT_TRUE(program.ok()) << program.error().message;
      const auto theirs = compile(*program);
      ASSERT_TRUE(theirs.ok()) << theirs.error().message;
      EXPECT_EQ(ours.argument_bytes(), theirs->argument) << backward;
      EXPECT_EQ(ours.output_bytes(), theirs->output) << backward;
      EXPECT_LE(theirs->code, kProgramRoom);
      const int64_t total =
          theirs->argument + theirs->output + theirs->temporary;
      EXPECT_GE(ours.total(), total) << backward;
      const int64_t kept =
          large ? 0 : std::min(ours.core_bytes(), budget->chip.core);
      EXPECT_LE(static_cast<double>(ours.total() - margin_of(ours) - kept),
                (large ? 1.25 : 1.1) * static_cast<double>(total))
          << backward;
    }
  }

  const pjrt::Plugin* plugin_ = nullptr;
};

constexpr Case kCases[] = {
    {"causal & documents", "seq=4", Balance::tasks, 1, 4096, 128},
    {"causal", "data=2,seq=2", Balance::rows, 2, 2048, 64},
    {"causal & documents", "seq=4", Balance::tasks, 1, 4096, 128,
     TileExchange::ragged},
    {"causal", "data=2,seq=2", Balance::rows, 2, 2048, 64,
     TileExchange::ragged},
    {"causal & documents", "seq=4", Balance::tasks, 1, 4096, 128,
     TileExchange::gather},
    {"causal", "data=2,seq=2", Balance::rows, 2, 2048, 64,
     TileExchange::gather},
};

TEST_F(MeshFitCompile, XlaPrograms) {
  for (size_t i = testing::first_case(std::size(kCases)); i < std::size(kCases);
       i += testing::case_stride()) {
    SCOPED_TRACE(kCases[i].mesh);
    const auto batch = batch_of(kCases[i], {256, 256});
    ASSERT_TRUE(batch.ok()) << batch.error().message;
    compare(asked_of(kCases[i], *batch, LaneId::xla));
  }
}

TEST_F(MeshFitCompile, MosaicPrograms) {
  for (size_t i = testing::first_case(std::size(kCases)); i < std::size(kCases);
       i += testing::case_stride()) {
    SCOPED_TRACE(kCases[i].mesh);
    const auto batch = batch_of(kCases[i], {256, 256});
    ASSERT_TRUE(batch.ok()) << batch.error().message;
    compare(asked_of(kCases[i], *batch, LaneId::mosaic));
  }
}

TEST_F(MeshFitCompile, MosaicProgramsInChunksOfQueries) {
  constexpr Case cases[] = {
      {"causal", "seq=4", Balance::headtail, 1, 16384, 128},
      {"causal & documents", "seq=4", Balance::tasks, 1, 16384, 128},
      {"causal", "data=2,seq=2", Balance::rows, 2, 8192, 64,
       TileExchange::ragged}};
  for (size_t i = 0; i < std::size(cases); ++i) {
    if (!testing::takes_case(i, std::size(cases))) continue;
    SCOPED_TRACE(i);
    const auto batch = batch_of(cases[i], {512, 512});
    ASSERT_TRUE(batch.ok()) << batch.error().message;
    MeshFitCall asked = asked_of(cases[i], *batch, LaneId::mosaic);
    asked.query_chunk = 1024;
    compare(asked);
  }
}

// Arrays of gigabytes, which no core holds, are counted as the compiler's heap
// places them.
TEST_F(MeshFitCompile, LargeXlaProgramsAreNeverBelow) {
  constexpr auto kRagged = TileExchange::ragged;
  constexpr auto kRounds = TileExchange::rounds;
  constexpr auto kGather = TileExchange::gather;
  constexpr auto kTasks = Balance::tasks;
  constexpr int64_t kTokens = 1 << 19;
  constexpr const char* kDocuments = "causal & documents";
  constexpr Case cases[] = {
      {"causal", "seq=4", kTasks, 1, kTokens, 128, kRounds, 8},
      {"causal", "seq=4", Balance::rows, 1, kTokens, 128, kRagged, 8},
      {kDocuments, "seq=4", kTasks, 1, kTokens, 128, kGather, 8},
      {"causal", "seq=4", kTasks, 1, kTokens, 128, kRagged, 8},
      {"causal", "data=2,seq=2", kTasks, 2, kTokens, 128, kRounds, 8},
      {kDocuments, "seq=4", kTasks, 1, kTokens, 128, kRounds, 8},
      {"causal", "seq=4", Balance::rows, 1, kTokens, 128, kRounds, 8},
      // Backward, libtpu takes 19% and 18% more than our count without margin.
      {"causal", "seq=4", Balance::rows, 1, kTokens, 128, kRagged, 2},
      {kDocuments, "seq=4", kTasks, 1, kTokens, 128, kRagged, 2}};
  for (size_t i = 0; i < std::size(cases); ++i) {
    if (!testing::takes_case(i, std::size(cases))) continue;
    SCOPED_TRACE(i);
    const auto batch = batch_of(cases[i], {512, 512});
    ASSERT_TRUE(batch.ok()) << batch.error().message;
    compare(asked_of(cases[i], *batch, LaneId::xla), true);
  }
}

// On one device nothing travels, and the parts are those of a call without a
// mesh plus the numbers of tokens.
TEST(MeshFit, NothingTravelsOnOneDevice) {
  const Case c = {"causal", "seq=1", Balance::rows, 1, 2048, 128};
  const auto batch = batch_of(c, {256, 256});
  ASSERT_TRUE(batch.ok()) << batch.error().message;
  const MeshFitCall asked = asked_of(c, *batch, LaneId::mosaic);
  const auto budget = make_budget(asked);
  ASSERT_TRUE(budget.ok()) << budget.error().message;
  int64_t tensors = 0;
  for (const MemoryPart& p : budget->forward.scratch) {
    tensors += p.name == "counters" ? 0 : p.bytes;
  }
  EXPECT_EQ(tensors, 0);
  // q, k, v and out in bf16 and the log-sum-exp in float32.
  EXPECT_EQ(budget->residuals(),
            2 * 128 * 2048 * (8 + 2 + 2 + 8) + 4 * 8 * 2048);
}

// Each of two devices has as many own keys as keys that come, so the largest
// moment always has a call that keeps columns between chunks, for one key head
// at a time, in float32.
TEST(MeshFit, ChunksOfQueriesAreCounted) {
  const Case c = {"causal", "seq=2", Balance::contiguous, 1, 2048, 128};
  const auto batch = batch_of(c, {256, 256});
  ASSERT_TRUE(batch.ok()) << batch.error().message;
  MeshFitCall asked = asked_of(c, *batch, LaneId::mosaic);
  const auto whole = make_budget(asked);
  ASSERT_TRUE(whole.ok()) << whole.error().message;
  asked.query_chunk = 512;
  const auto chunks = make_budget(asked);
  ASSERT_TRUE(chunks.ok()) << chunks.error().message;
  constexpr const char* kColumns = "columns between chunks";
  constexpr const char* kRows = "rows between calls";
  EXPECT_EQ(bytes_of(whole->forward, kColumns), 0);
  EXPECT_EQ(bytes_of(*whole->backward, kColumns), 0);
  EXPECT_EQ(bytes_of(chunks->forward, kColumns), 0);
  EXPECT_EQ(bytes_of(*chunks->backward, kColumns), 2 * 4 * 128 * 1024);
  for (const auto* budget : {&*whole, &*chunks}) {
    EXPECT_EQ(bytes_of(*budget->backward, kRows), 4 * 128 * 8 * 1024);
  }
  EXPECT_EQ(chunks->forward.total(), whole->forward.total());
  EXPECT_GE(chunks->backward->total(),
            whole->backward->total() + 2 * 4 * 128 * 1024);
}

// The margin is a quarter of all that is counted for ragged exchanges, small
// for gathers, and 0 around kernels or if nothing travels.
TEST(MeshFit, ExchangesOfLaneXlaHaveAMargin) {
  const Case c = {"causal", "seq=4", Balance::rows, 1, 4096, 128};
  const auto batch = batch_of(c, {256, 256});
  ASSERT_TRUE(batch.ok()) << batch.error().message;
  for (const LaneId lane : {LaneId::xla, LaneId::mosaic}) {
    for (const TileExchange exchange :
         {TileExchange::rounds, TileExchange::ragged, TileExchange::gather,
          TileExchange::automatic}) {
      for (const char* mesh : {"seq=4", "seq=1"}) {
        MeshFitCall asked = asked_of(c, *batch, lane);
        asked.mesh = *parse_mesh(mesh);
        asked.options.exchange = exchange;
        const auto budget = make_budget(asked);
        ASSERT_TRUE(budget.ok()) << budget.error().message;
        for (const PassMemory* pass : {&budget->forward, &*budget->backward}) {
          int64_t due = 0;
          const bool travels = mesh == std::string("seq=4");
          if (lane == LaneId::xla && travels) {
            // For a TPU an automatic exchange is ragged.
            if (exchange == TileExchange::ragged ||
                exchange == TileExchange::automatic) {
              due = (pass->total() - margin_of(*pass)) / 4;
            } else if (exchange == TileExchange::gather) {
              due = 8 * 16384;
            }
          }
          EXPECT_EQ(margin_of(*pass), due)
              << to_string(exchange) << " " << mesh << " " << to_string(lane);
        }
      }
    }
  }
}

TEST(MeshFit, ATileBelowTheGranuleHasAReason) {
  const Case c = {"causal", "seq=2", Balance::rows, 1, 2048, 128};
  const auto batch = batch_of(c, {128, 128});
  ASSERT_TRUE(batch.ok()) << batch.error().message;
  for (const LaneId lane : {LaneId::xla, LaneId::mosaic}) {
    MeshFitCall asked = asked_of(c, *batch, lane);
    const auto budget = make_budget(asked);
    ASSERT_FALSE(budget.ok());
    EXPECT_NE(budget.error().message.find("must come with a lowering reason"),
              std::string::npos)
        << budget.error().message;
    asked.lowering_reason = "a test of few tokens";
    EXPECT_TRUE(make_budget(asked).ok());
  }
}

TEST(MeshFit, WhatDoesNotFitIsSaidWithWhatWould) {
  const Case c = {"causal", "head=2", Balance::rows, 1, 1 << 20, 128};
  const auto batch = batch_of(c, {1024, 1024});
  ASSERT_TRUE(batch.ok()) << batch.error().message;
  MeshFitCall asked = asked_of(c, *batch, LaneId::xla);
  asked.call.shape.heads = 64;
  asked.call.shape.kv_heads = 64;
  asked.chip = "v5e";
  const auto budget = make_budget(asked);
  ASSERT_TRUE(budget.ok()) << budget.error().message;
  ASSERT_FALSE(budget->fits());
  const auto remedies = what_fits(asked);
  ASSERT_FALSE(remedies.empty());
  for (const Remedy& r : remedies) {
    EXPECT_LE(r.needed, budget->chip.room) << r.change;
    MeshFitCall half = asked;
    const std::string axis = r.change.substr(r.change.rfind(' ') + 1);
    half.mesh = *parse_mesh("head=2");
    if (axis == "head") half.mesh.axes[0].size = r.fits / 2;
    if (axis != "head") half.mesh.axes.push_back({axis, r.fits / 2});
    const auto before = make_budget(half);
    ASSERT_TRUE(before.ok()) << before.error().message;
    EXPECT_FALSE(before->fits()) << r.change;
  }
  const auto error = check_fits(asked, *budget);
  ASSERT_FALSE(error.ok());
  EXPECT_TRUE(error.error().message.starts_with(
      "[fit] the backward pass must fit the 15.75 GiB of a v5e device, found "))
      << error.error().message;
  EXPECT_NE(error.error().message.find("what would fit: devices along "),
            std::string::npos)
      << error.error().message;
}

}  // namespace
}  // namespace tessera
