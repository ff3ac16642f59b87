// lanes/mosaic/shards_test.cc: the program of a mesh whose devices attend by
// the TPU kernel. Four CPU devices run the program with plain attention over
// the same arrays in the kernel's place; libtpu compiles it unchanged.
#include "lanes/mosaic/shards.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lanes/mosaic/kernel_steps.h"
#include "lanes/mosaic/parts.h"
#include "lanes/mosaic/settings.h"
#include "lanes/mosaic/shard_steps.h"
#include "lanes/mosaic/vector_memory.h"
#include "lanes/program_arrays.h"
#include "lanes/xla/device_parts.h"
#include "lanes/xla/stage.h"
#include "pjrt/compile.h"
#include "pjrt/compile_for.h"
#include "pjrt/execute.h"
#include "pjrt/place.h"
#include "pjrt/topology.h"
#include "plan/batch_state.h"
#include "tests/attention_case.h"
#include "tests/cpu_exchange.h"
#include "tests/lowering.h"
#include "tests/plugins.h"
#include "tests/stablehlo_shards.h"
#include "tests/tpu_meshes.h"

namespace tessera::mosaic {
namespace {

using testing::AttentionArrays;
using testing::AttentionCase;
using Fault = std::optional<std::string>;

// A call over a mesh whose axes are in the order of shards.
struct ShardCase {
  std::vector<std::string> masks;
  std::string mesh;
  Balance balance;
  AttentionShape shape = {2, 1, 64, 64, {}, 0};
  Dtype dtype = Dtype::f32;
  int64_t batch = 1, tokens = 600;
  Tile tile = {128, 128};
  int64_t tiles_per_pass = 1;
  bool sinks = false, dlse = false;
  bool uneven = false;
  // Number of documents that alternate, so that few keys are seen in many
  // tiles.
  int64_t turns = 0;
  int64_t page_steps = 0;
  int64_t query_chunk = 0;  // backward
  TileExchange exchange = TileExchange::rounds;
  Numbers numbers = Numbers::finite;
};

// Documents of varying lengths; a few tokens at the end do not count.
AttentionCase attention_of(const ShardCase& s) {
  AttentionCase c;
  for (const std::string& m : s.masks) c.plan.masks.push_back(*parse_expr(m));
  c.plan.batch = s.batch;
  c.plan.q_len = c.plan.kv_len = s.tokens;
  c.plan.tile = s.tile;
  c.plan.doc_ids.emplace();
  for (int64_t b = 0; b < s.batch; ++b) {
    for (int64_t t = 0; t < s.tokens; ++t) {
      const int64_t length = 90 + 60 * b;
      const int64_t id = s.turns > 0 ? t % s.turns : t * t / length / 300;
      c.plan.doc_ids->push_back(t < s.tokens - 9 ? static_cast<int32_t>(id)
                                                 : -1);
    }
  }
  c.shape = s.shape;
  c.dtype = s.dtype;
  c.sinks = s.sinks;
  c.dlse = s.dlse;
  return c;
}

AttentionCall call_of(const AttentionCase& c, bool backward) {
  return {c.shape, c.dtype, c.sinks, backward, c.dlse && backward};
}

MosaicOptions options_of(const ShardCase& s, bool backward) {
  MosaicOptions out = backward ? kMosaicBackward : MosaicOptions();
  out.tiles_per_pass = s.tiles_per_pass;
  out.page_steps = s.page_steps;
  if (backward) out.query_chunk = s.query_chunk;
  out.numbers = s.numbers;
  out.lowering_reason = testing::lowering_reason(s.tile);
  return out;
}

Result<Shards> shards_of(const ShardCase& s, const Batch& batch) {
  ShardOptions options;
  options.balance = s.balance;
  options.exchange = s.exchange;
  options.shape = s.shape;
  options.dtype = s.dtype;
  options.dlse = s.dlse;
  options.uneven = s.uneven;
  return make_shards(batch, *parse_mesh(s.mesh), options);
}

// The real program states how every array lies, and exchanges what the report
// says.
void check_audit(const ShardKernel& kernel, const Shards& shards,
                 const ShardCase& s) {
  const std::string text = program_text(kernel);
  const auto audit = audit_program(text);
  ASSERT_TRUE(audit) << audit.error().message;
  EXPECT_EQ(audit->partitions, shards.mesh.devices());
  ASSERT_EQ(audit->boundaries.size(), 1U);
  const bool backward = kernel.planned.kernel.call.backward;
  const Moved& moved =
      backward ? shards.report.backward : shards.report.forward;
  EXPECT_EQ(testing::capacity_of(*audit), moved.capacity);
  const std::string& terms = kernel.planned.kernel.contract.text;
  EXPECT_NE(terms.find(audit->fingerprint), std::string::npos) << terms;
  if (s.exchange == TileExchange::ragged) {
    EXPECT_EQ(text.find("collective_permute"), std::string::npos);
  }
  EXPECT_EQ(text.find("all_gather") != std::string::npos,
            s.exchange == TileExchange::gather && !shards.kv.rounds.empty());
  size_t calls = 0;
  const std::string call = "call_target_name = \"tpu_custom_call\"";
  for (size_t at = text.find(call); at != std::string::npos;
       at = text.find(call, at + 1)) {
    ++calls;
  }
  EXPECT_EQ(calls, kernel.calls.size());
}

class MosaicShards : public ::testing::Test {
 protected:
  void SetUp() override {
    testing::look_in_venv();
    auto places = pjrt::open_devices("xla_cpu_pjrt", 0, 4);
    if (testing::is_absent(places)) GTEST_SKIP() << places.error().message;
    ASSERT_TRUE(places) << places.error().message;
    places_.emplace(std::move(*places));
  }

  // Every device's part of one array.
  using Parts = std::vector<xla::Part>;

  // Runs the program with plain attention in the kernel's place.
  Result<std::map<std::string, Parts>> run(
      const ShardKernel& kernel, const Batch& batch, const Shards& shards,
      const std::map<std::string, xla::CallArray>& from,
      std::span<const float> sinks) {
    auto loaded = pjrt::compile(*places_->client, places_->devices,
                                testing::with_cpu_exchanges(program_text(
                                    kernel, testing::stablehlo_call)));
    if (!loaded) return loaded.error();
    auto integers =
        make_mosaic_shard_arrays(batch, shards, kernel.planned.kernel);
    if (!integers) return integers.error();
    const xla::ShardArrays arrays = arrays_of(kernel);
    const std::vector<ArraySpec> whole =
        xla::program_arrays(kernel.frame, arrays).arguments;
    std::vector<xla::Part> sent;  // which the buffers may read in place
    std::vector<std::vector<pjrt::Buffer>> buffers(places_->devices.size());
    std::vector<pjrt::Inputs> inputs(places_->devices.size());
    sent.reserve(places_->devices.size() * arrays.arguments.size());
    for (size_t d = 0; d < places_->devices.size(); ++d) {
      const Shard& shard = shards.shards[d];
      buffers[d].reserve(arrays.arguments.size());
      for (size_t i = 0; i < arrays.arguments.size(); ++i) {
        const xla::ShardArray& a = arrays.arguments[i];
        const void* data = nullptr;
        if (a.is_own) {
          const MosaicArray& all = (*integers)[i];
          EXPECT_EQ(all.name, a.part.name);
          EXPECT_EQ(all.shape, whole[i].shape);
          data = all.values.data() +
                 d * static_cast<size_t>(a.part.type.elements());
        } else if (a.part.name == "sink_logits") {
          sent.push_back(part_of_heads(sinks, shard, a));
          data = sent.back().data();
        } else {
          sent.push_back(xla::stage(kernel.frame, shard, a.part.type,
                                    from.at(a.part.name)));
          data = sent.back().data();
        }
        auto buffer = pjrt::to_device(*places_->client, places_->devices[d],
                                      xla::array_type(a.part.type), data);
        if (!buffer) return buffer.error();
        buffers[d].push_back(std::move(*buffer));
        inputs[d].push_back(&buffers[d].back());
      }
    }
    auto made = pjrt::execute_on_all(*loaded, inputs);
    if (!made) return made.error();
    std::map<std::string, Parts> out;
    for (std::vector<pjrt::Buffer>& of_device : *made) {
      for (size_t i = 0; i < of_device.size(); ++i) {
        const auto bytes = pjrt::byte_size(of_device[i].type());
        if (!bytes) return bytes.error();
        xla::Part part(static_cast<size_t>(*bytes));
        if (auto e = pjrt::to_host(of_device[i], part.data(), *bytes); !e) {
          return e.error();
        }
        out[arrays.results[i].part.name].push_back(std::move(part));
      }
    }
    return out;
  }

  static xla::Part part_of_heads(std::span<const float> values,
                                 const Shard& shard, const xla::ShardArray& a) {
    xla::Part out(static_cast<size_t>(a.part.type.elements()) * sizeof(float));
    std::memcpy(out.data(), values.data() + shard.first_head,
                static_cast<size_t>(shard.heads) * sizeof(float));
    return out;
  }

  static void join(const ShardKernel& kernel, const Shards& shards,
                   const Parts& parts, const xla::CallArray& to) {
    for (size_t s = 0; s < parts.size(); ++s) {
      xla::unstage(kernel.frame, shards.shards[s], parts[s], to);
    }
  }

  // Checks both directions against fp64.
  Fault fault(const ShardCase& s) {
    AttentionArrays arrays(attention_of(s));
    const AttentionCase& c = arrays.c;
    const testing::Wanted want = testing::wanted(arrays, true);
    arrays.clear_outputs();
    auto batch = BorrowedBatch::make(arrays.request, arrays.facts);
    if (!batch) return batch.error().message;
    auto shards = shards_of(s, *batch);
    if (!shards) return shards.error().message;
    for (const Round& r : shards->q.rounds) moved_tasks_ += r.capacity;
    const auto input = [](const TensorView& t, bool rows) {
      return xla::CallArray{t, nullptr, rows};
    };
    const auto result = [](const MutableTensorView& t, bool rows) {
      return xla::CallArray{as_input(t), t.data, rows};
    };
    const auto numbers = [&](std::span<const float> x) {
      return xla::CallArray{TensorView::bhsd(x.data(), Dtype::f32, c.plan.batch,
                                             c.shape.heads, c.plan.q_len, 1),
                            const_cast<float*>(x.data()), true};
    };

    auto forward = plan_shards(*batch, *shards, call_of(c, false), "v6e:2x2",
                               options_of(s, false));
    if (!forward) return forward.error().message;
    check_audit(*forward, *shards, s);
    const ForwardTensors f = arrays.forward(true);
    const std::span<const float> sinks =
        f.sink_logits.value_or(std::span<const float>());
    std::map<std::string, xla::CallArray> from = {{"q", input(f.q, true)},
                                                  {"k", input(f.k, false)},
                                                  {"v", input(f.v, false)}};
    auto made = run(*forward, *batch, *shards, from, sinks);
    if (!made) return made.error().message;
    join(*forward, *shards, made->at("out"), result(f.out, true));
    join(*forward, *shards, made->at("lse"), numbers(f.lse));
    if (auto e = testing::forward_fault(want, f)) return "forward: " + *e;

    auto backward = plan_shards(*batch, *shards, call_of(c, true), "v6e:2x2",
                                options_of(s, true));
    if (!backward) return backward.error().message;
    EXPECT_EQ(backward->planned.kernel.query_chunk, s.query_chunk);
    check_audit(*backward, *shards, s);
    const Gradients b = arrays.gradients();
    from["out"] = result(f.out, true);
    from["dout"] = input(b.dout, true);
    from["lse"] = numbers(f.lse);
    if (c.dlse) from["dlse"] = numbers(b.dlse);
    made = run(*backward, *batch, *shards, from, sinks);
    if (!made) return made.error().message;
    join(*backward, *shards, made->at("dq"), result(b.dq, true));
    join(*backward, *shards, made->at("dk"), result(b.dk, false));
    join(*backward, *shards, made->at("dv"), result(b.dv, false));
    if (c.sinks) add_sinks(*shards, made->at("dsink_logits"), b.dsink_logits);
    if (auto e = testing::backward_fault(c, want, b)) return "backward: " + *e;
    return arrays.spilled();
  }

  static void add_sinks(const Shards& shards, const Parts& parts,
                        std::span<float> to) {
    std::fill(to.begin(), to.end(), 0.0F);
    for (size_t s = 0; s < parts.size(); ++s) {
      const Shard& shard = shards.shards[s];
      for (int64_t h = 0; h < shard.heads; ++h) {
        float more = 0;
        std::memcpy(&more,
                    parts[s].data() + static_cast<size_t>(h) * sizeof more,
                    sizeof more);
        to[static_cast<size_t>(shard.first_head + h)] += more;
      }
    }
  }

  std::optional<pjrt::Places> places_;
  int64_t moved_tasks_ = 0;
};

constexpr const char* kPacked = "causal & documents";

std::vector<ShardCase> cases_of_meshes() {
  return {
      {.masks = {kPacked}, .mesh = "seq=4", .balance = Balance::contiguous},
      {.masks = {kPacked},
       .mesh = "seq=4",
       .balance = Balance::rows,
       .tiles_per_pass = 2,
       .dlse = true},
      // The sink's share is large, and only one device counts it.
      {.masks = {kPacked},
       .mesh = "seq=4",
       .balance = Balance::tasks,
       .tokens = 900,
       .sinks = true,
       .turns = 200},
      // Fewer rows of tiles than devices.
      {.masks = {"causal"},
       .mesh = "seq=4",
       .balance = Balance::tasks,
       .dtype = Dtype::bf16,
       .tokens = 300,
       .sinks = true},
      {.masks = {"causal & (documents | window(60, 0)) | sink(3)"},
       .mesh = "data=2,seq=2",
       .balance = Balance::tasks,
       .dtype = Dtype::bf16,
       .batch = 3,
       .tokens = 300,
       .tile = {128, 256},
       .tiles_per_pass = 2,
       .uneven = true},
      {.masks = {"causal & documents", "window(100, 5)"},
       .mesh = "seq=4",
       .balance = Balance::headtail,
       .shape = {4, 2, 64, 64, 0.2, 3},
       .tokens = 500},
      {.masks = {kPacked},
       .mesh = "head=2,seq=2",
       .balance = Balance::rows,
       .shape = {4, 2, 64, 128, {}, 0},
       .tokens = 500,
       .sinks = true},
      // Two lists that add to one dK and dV.
      {.masks = {"causal & documents", "window(100, 5)"},
       .mesh = "seq=4",
       .balance = Balance::contiguous,
       .tokens = 1000},
      // A mask for each K/V head, one on each device.
      {.masks = {"causal & documents", "window(100, 5)"},
       .mesh = "head=2,seq=2",
       .balance = Balance::rows,
       .shape = {4, 2, 64, 64, {}, 0},
       .tokens = 500,
       .sinks = true,
       .dlse = true},
      // Two lists on each device, whose heads share one K/V head.
      {.masks = {"causal & documents", "window(100, 5)", "sink(3)", "causal"},
       .mesh = "head=2,seq=2",
       .balance = Balance::tasks,
       .shape = {4, 2, 64, 64, {}, 0},
       .tokens = 500},
      // Half of a mask's heads on a device.
      {.masks = {"causal & documents", "window(100, 5)"},
       .mesh = "head=4",
       .balance = Balance::rows,
       .shape = {4, 4, 64, 64, {}, 0},
       .tokens = 300},
  };
}

std::vector<ShardCase> cases_of_pages_and_chunks() {
  return {
      // Pages of a row or two, with two lists.
      {.masks = {"causal & documents", "window(100, 5)"},
       .mesh = "seq=4",
       .balance = Balance::tasks,
       .shape = {4, 2, 64, 64, {}, 0},
       .sinks = true,
       .dlse = true,
       .page_steps = 7},
      // In chunks of queries: chunks of one row of tiles;
      {.masks = {kPacked},
       .mesh = "seq=4",
       .balance = Balance::contiguous,
       .tokens = 1000,
       .tiles_per_pass = 2,
       .dlse = true,
       .query_chunk = 128},
      // chunks with received queries, and a smaller last one;
      {.masks = {kPacked},
       .mesh = "seq=4",
       .balance = Balance::tasks,
       .dtype = Dtype::bf16,
       .tokens = 1500,
       .sinks = true,
       .turns = 200,
       .query_chunk = 256},
      // two lists that add to one dK and dV, in pages;
      {.masks = {"causal & documents", "window(100, 5)"},
       .mesh = "seq=4",
       .balance = Balance::headtail,
       .shape = {4, 2, 64, 64, {}, 0},
       .tokens = 1500,
       .sinks = true,
       .page_steps = 24,
       .query_chunk = 256},
      // some devices without a batch row, with and without exchanged tiles.
      {.masks = {kPacked},
       .mesh = "data=2,seq=2",
       .balance = Balance::rows,
       .shape = {2, 2, 64, 64, {}, 0},
       .uneven = true,
       .query_chunk = 256},
      {.masks = {kPacked},
       .mesh = "data=4",
       .balance = Balance::rows,
       .batch = 3,
       .tokens = 500,
       .dlse = true,
       .uneven = true,
       .query_chunk = 256},
  };
}

TEST_F(MosaicShards, JoinedDevicesAreTheReference) {
  std::vector<ShardCase> cases = cases_of_meshes();
  const std::vector<ShardCase> in_parts = cases_of_pages_and_chunks();
  cases.insert(cases.end(), in_parts.begin(), in_parts.end());
  constexpr TileExchange kExchanges[] = {
      TileExchange::rounds, TileExchange::ragged, TileExchange::gather};
  const size_t all = std::size(kExchanges) * cases.size();
  for (size_t i = testing::first_case(all); i < all;
       i += testing::case_stride()) {
    ShardCase s = cases[i / std::size(kExchanges)];
    s.exchange = kExchanges[i % std::size(kExchanges)];
    // A gather brings a device's own columns too, and a page has room for all.
    if (s.exchange == TileExchange::gather && s.page_steps > 0) {
      s.page_steps = std::max<int64_t>(s.page_steps, 10);
    }
    const Fault found = fault(s);
    EXPECT_FALSE(found) << "case " << i << ", " << s.mesh << " "
                        << to_string(s.balance) << ", " << to_string(s.exchange)
                        << ": " << *found;
  }
  if (testing::case_stride() == 1) {
    EXPECT_GT(moved_tasks_, 0);
  }
}

Result<OwnedBatch> long_batch(int64_t rows, int64_t tokens,
                              Tile tile = Request().tile,
                              const char* mask = "causal") {
  Request request;
  request.masks = {*parse_mask(mask)};
  request.batch = rows;
  request.q_len = request.kv_len = tokens;
  request.tile = tile;
  return OwnedBatch::make(request, {});
}

// Compiles both directions ahead of time.
void compile(const pjrt::Plugin& plugin, const char* target, const ShardCase& s,
             const Batch& batch) {
  auto shards = shards_of(s, batch);
  ASSERT_TRUE(shards) << shards.error().message;
  for (const bool backward : {false, true}) {
    auto kernel = make_mosaic_shards(
        batch, *shards,
        {s.shape, s.dtype, s.sinks, backward, s.dlse && backward}, target,
        options_of(s, backward));
    ASSERT_TRUE(kernel) << kernel.error().message;
    EXPECT_EQ(kernel->page > 0, s.page_steps > 0);
    auto compiled =
        pjrt::compile_for({plugin.path(), {}}, target, kernel->program_text);
    ASSERT_TRUE(compiled) << target << ": " << compiled.error().message;
  }
}

// Ahead of time, for 4, 16 and 256 chips, and for other chips than v6e.
TEST(MosaicShardProgram, CompilesForTpus) {
  auto plugin = testing::real_plugin("libtpu");
  if (testing::is_absent(plugin)) GTEST_SKIP() << plugin.error().message;
  ASSERT_TRUE(plugin) << plugin.error().message;
  for (const auto& [target, mesh, exchange] : testing::tpu_meshes()) {
    // A device's batch rows become one row of its kernel.
    auto batch = long_batch(parse_mesh(mesh)->size("data"), 4096);
    ASSERT_TRUE(batch) << batch.error().message;
    const ShardCase s = {.masks = {"causal"},
                         .mesh = mesh,
                         .balance = Balance::tasks,
                         .shape = {4, 2, 128, 128, {}, 0},
                         .dtype = Dtype::bf16,
                         .tile = batch->request().tile,
                         .exchange = exchange};
    compile(**plugin, target, s, *batch);
  }
}

// Cases with what plain causal bf16 tasks lack, one or two properties at a
// time.
std::vector<ShardCase> kinds() {
  const std::string packed = "causal & documents";
  const std::vector<std::string> two = {"causal", "window(700, 5)"};
  const AttentionShape shape = {4, 2, 128, 128, {}, 0};
  std::vector<ShardCase> out = {
      // Numbers as sessions set them.
      {.masks = {packed},
       .mesh = "seq=4",
       .balance = Balance::tasks,
       .numbers = Numbers::any},
      {.masks = {packed},
       .mesh = "seq=4",
       .balance = Balance::tasks,
       .sinks = true,
       .dlse = true},
      // A mask for each device's heads.
      {.masks = two, .mesh = "head=2,seq=2", .balance = Balance::rows},
      // Two lists on each device, in pages.
      {.masks = two,
       .mesh = "seq=4",
       .balance = Balance::rows,
       .page_steps = 40},
  };
  for (ShardCase& s : out) {
    s.shape = shape;
    s.dtype = Dtype::bf16;
  }
  out.push_back({.masks = {packed},
                 .mesh = "seq=4",
                 .balance = Balance::tasks,
                 .shape = shape,
                 .numbers = Numbers::any});  // float32
  // Arrays with the tokens last.
  out.push_back({.masks = {packed},
                 .mesh = "seq=4",
                 .balance = Balance::headtail,
                 .shape = {4, 2, 64, 64, {}, 30},
                 .dtype = Dtype::bf16});
  for (ShardCase& s : out) {
    s.tokens = 4096;
    s.tile = {256, 256};
  }
  return out;
}

TEST(MosaicShardProgram, OfEveryKindCompilesForTpus) {
  auto plugin = testing::real_plugin("libtpu");
  if (testing::is_absent(plugin)) GTEST_SKIP() << plugin.error().message;
  ASSERT_TRUE(plugin) << plugin.error().message;
  const std::vector<ShardCase> cases = kinds();
  for (size_t i = 0; i < cases.size(); ++i) {
    if (!testing::takes_case(i, cases.size())) continue;
    SCOPED_TRACE(i);
    const AttentionCase c = attention_of(cases[i]);
    auto batch = BorrowedBatch::make(*c.plan.request(), c.plan.facts());
    ASSERT_TRUE(batch) << batch.error().message;
    compile(**plugin, "v6e:2x2", cases[i], *batch);
    // Meshes with a head axis are compiled for other chips too.
    if (cases[i].mesh == "seq=4") continue;
    compile(**plugin, "v5p:2x2x1", cases[i], *batch);
  }
}

// A causal row for which dQ of all queries of a device, or the sums of keys
// whose heads take turns, do not fit vector memory.
struct LargeCall {
  const char* target;
  const char* mesh;
  int64_t heads, kv_heads, tokens;
  Numbers numbers = Numbers::finite;
};
ShardCase large_case(const LargeCall& c) {
  return {.masks = {"causal"},
          .mesh = c.mesh,
          .balance = Balance::headtail,
          .shape = {c.heads, c.kv_heads, 128, 128, {}, 0},
          .dtype = Dtype::bf16,
          .tokens = c.tokens,
          .tile = {512, 512}};
}

// Checks that each device's steps have room in all calls, and in pages.
void check_room_for_steps(const Batch& batch, const Shards& shards,
                          const ShardKernel& kernel) {
  const auto read = plan::read_batch(batch, "test");
  ASSERT_TRUE(read) << read.error().message;
  const VetoedTiles vetoed = vetoed_tiles((*read)->sweep.bound);
  const MosaicKernel& k = kernel.planned.kernel;
  std::vector<Turn> turns;
  turns.reserve(kernel.calls.size());
  for (const ShardCall& c : kernel.calls) turns.push_back(c.turn);
  for (size_t s = 0; s < shards.shards.size(); ++s) {
    const auto calls = steps_of_calls(batch, vetoed, shards, s, k, turns);
    ASSERT_TRUE(calls) << calls.error().message;
    for (const CallSteps& c : *calls) {
      EXPECT_LE(static_cast<int64_t>(c.steps.steps.size()), k.steps);
      MosaicArrays arrays;
      const auto placed = place_steps(c.steps, k, arrays);
      EXPECT_TRUE(placed) << placed.error().message;
    }
  }
}

TEST(MosaicShardProgram, WhatDoesNotFitComesInChunksOfQueries) {
  for (const LargeCall& c : {LargeCall{"v6e", "head=2,seq=2", 32, 8, 1 << 17},
                             {"v6e", "seq=8", 64, 8, 1 << 17},
                             {"tpu7x", "seq=8", 64, 8, 1 << 17},
                             {"tpu7x", "seq=4", 8, 8, 1 << 19},
                             {"v6e", "seq=8", 8, 8, 1 << 20, Numbers::any}}) {
    SCOPED_TRACE(fmt::format("{} {} {}", c.target, c.mesh, c.tokens));
    const ShardCase s = large_case(c);
    auto batch = long_batch(1, c.tokens, s.tile);
    ASSERT_TRUE(batch) << batch.error().message;
    auto shards = shards_of(s, *batch);
    ASSERT_TRUE(shards) << shards.error().message;
    const AttentionCall call = {s.shape, s.dtype, false, true, false};
    MosaicOptions options = options_of(s, true);
    options.numbers = c.numbers;
    const auto made = plan_shards(*batch, *shards, call, c.target, options);
    ASSERT_TRUE(made) << made.error().message;
    const MosaicKernel& k = made->planned.kernel;
    EXPECT_GT(k.query_chunk, 0);
    EXPECT_NE(
        k.contract.text.find(fmt::format("\"query_chunk\":{}", k.query_chunk)),
        std::string::npos)
        << k.contract.text;
    const int64_t room = vector_room(made->planned.shape.core_bytes, true);
    EXPECT_LE(k.vector_bytes, room);
    ASSERT_EQ(made->calls.size(), 3U);
    for (const ShardCall& one : made->calls) {
      EXPECT_EQ(one.kernel.shape.chunk_rows * s.tile.q, k.query_chunk);
      EXPECT_LE(vector_bytes(arguments_of(one.kernel.shape, true)), room);
    }
    check_room_for_steps(*batch, *shards, *made);
    // Without chunks the call does not fit.
    options.query_chunk = c.tokens;
    const auto whole = plan_shards(*batch, *shards, call, c.target, options);
    ASSERT_FALSE(whole);
    EXPECT_NE(whole.error().message.find("(dQ of a head stays there:"),
              std::string::npos)
        << whole.error().message;
  }
}

// Smaller passes and shorter ways ahead are tried before chunks.
TEST(MosaicShardProgram, WhatFitsWholeStaysWhole) {
  int64_t in_chunks = 0, in_one = 0;
  for (const char* target : {"v4", "v5p", "v6e"}) {
    for (const int64_t tokens : {1 << 13, 1 << 16, 1 << 18}) {
      for (const int64_t kv_heads : {1, 8}) {
        SCOPED_TRACE(fmt::format("{} {} {}", target, tokens, kv_heads));
        ShardCase s = large_case({target, "seq=4", 8, kv_heads, tokens});
        auto batch = long_batch(1, tokens, s.tile, "causal & window(1023, 0)");
        ASSERT_TRUE(batch) << batch.error().message;
        auto shards = shards_of(s, *batch);
        ASSERT_TRUE(shards) << shards.error().message;
        const AttentionCall call = {s.shape, s.dtype, false, true, false};
        const auto fitted = fit_shards(*batch, *shards, call, target, {});
        ASSERT_TRUE(fitted) << fitted.error().message;
        MosaicOptions least = options_of(s, true);
        least.query_chunk = tokens;
        const bool whole =
            plan_shards(*batch, *shards, call, target, least).ok();
        EXPECT_EQ(fitted->kernel.planned.kernel.query_chunk == 0, whole);
        (whole ? in_one : in_chunks) += 1;
      }
    }
  }
  EXPECT_GT(in_chunks, 0);
  EXPECT_GT(in_one, 0);
}

// One chunk fits every call, because JAX makes a batch's integers before it
// knows the call.
TEST(MosaicShardProgram, ChunksAreThoseOfAnyCall) {
  const ShardCase s = large_case({"v4", "seq=4", 8, 8, 1 << 16});
  auto batch = long_batch(1, s.tokens, s.tile, "causal & window(1023, 0)");
  ASSERT_TRUE(batch) << batch.error().message;
  auto shards = shards_of(s, *batch);
  ASSERT_TRUE(shards) << shards.error().message;
  std::vector<MosaicArray> first;
  for (const bool sinks : {false, true}) {
    for (const bool dlse : {false, true}) {
      const auto made =
          plan_shards(*batch, *shards, {s.shape, s.dtype, sinks, true, dlse},
                      "v4", options_of(s, true));
      ASSERT_TRUE(made) << made.error().message;
      const MosaicKernel& k = made->planned.kernel;
      EXPECT_GT(chunks_of(k), 1);
      EXPECT_LE(k.vector_bytes,
                vector_room(made->planned.shape.core_bytes, true));
      auto arrays = make_mosaic_shard_arrays(*batch, *shards, k);
      ASSERT_TRUE(arrays) << arrays.error().message;
      if (first.empty()) first = *arrays;
      ASSERT_EQ(arrays->size(), first.size());
      for (size_t i = 0; i < first.size(); ++i) {
        EXPECT_EQ((*arrays)[i].name, first[i].name);
        EXPECT_EQ((*arrays)[i].shape, first[i].shape);
        EXPECT_TRUE((*arrays)[i].values == first[i].values) << first[i].name;
      }
    }
  }
}

// Backward kernels with sinks and dlse, one with numbers as sessions set them.
TEST(MosaicShardProgram, CompilesInChunksOfQueries) {
  auto plugin = testing::real_plugin("libtpu");
  if (testing::is_absent(plugin)) GTEST_SKIP() << plugin.error().message;
  ASSERT_TRUE(plugin) << plugin.error().message;
  constexpr LargeCall cases[] = {
      {"v6e:2x2", "head=2,seq=2", 32, 8, 1 << 17},
      {"tpu7x:2x2x1", "seq=8", 64, 8, 1 << 17},
      {"v5p:2x2x1", "seq=4", 8, 8, 1 << 19, Numbers::any}};
  for (size_t i = 0; i < std::size(cases); ++i) {
    if (!testing::takes_case(i, std::size(cases))) continue;
    const LargeCall& c = cases[i];
    SCOPED_TRACE(c.target);
    const ShardCase s = large_case(c);
    auto batch = long_batch(1, c.tokens, s.tile);
    ASSERT_TRUE(batch) << batch.error().message;
    auto shards = shards_of(s, *batch);
    ASSERT_TRUE(shards) << shards.error().message;
    MosaicOptions options = options_of(s, true);
    options.numbers = c.numbers;
    auto kernel = make_mosaic_shards(*batch, *shards,
                                     {s.shape, s.dtype, true, true, true},
                                     c.target, options);
    ASSERT_TRUE(kernel) << kernel.error().message;
    EXPECT_GT(kernel->query_chunk, 0);
    auto compiled = pjrt::compile_for({(*plugin)->path(), {}}, c.target,
                                      kernel->program_text);
    EXPECT_TRUE(compiled) << compiled.error().message;
  }
}

TEST(MosaicShardProgram, RefusesInOneLine) {
  auto batch = long_batch(1, 1024);
  ASSERT_TRUE(batch) << batch.error().message;
  ShardCase s = {.masks = {"causal"},
                 .mesh = "seq=2",
                 .balance = Balance::rows,
                 .shape = {2, 1, 128, 128, {}, 0},
                 .dtype = Dtype::bf16};
  auto shards = shards_of(s, *batch);
  ASSERT_TRUE(shards) << shards.error().message;
  AttentionCall call = {s.shape, s.dtype, false, false, false};
  const auto why = [&](const char* target) {
    auto made = make_mosaic_shards(*batch, *shards, call, target);
    return made ? std::string() : made.error().message;
  };
  EXPECT_EQ(why("v6e:2x2"), "");
  EXPECT_EQ(why("v5p:2x2x1"), "");
  EXPECT_EQ(
      why("v3:2x2"),
      "[target] target must be one of those whose memory is known (v4, v5e, "
      "v5p, v6e, tpu7x), found 'v3'");
  call.dtype = Dtype::f16;
  EXPECT_EQ(why("v6e").substr(0, 40),
            "[mosaic] the type must be bf16 or f32, f");
  call.dtype = s.dtype;
  // Arrays must be of the shards that the program was made for.
  auto kernel = make_mosaic_shards(*batch, *shards, call, "v6e");
  ASSERT_TRUE(kernel) << kernel.error().message;
  s.mesh = "seq=4";
  auto others = shards_of(s, *batch);
  ASSERT_TRUE(others) << others.error().message;
  auto arrays = make_mosaic_shard_arrays(*batch, *others, *kernel);
  ASSERT_FALSE(arrays);
  EXPECT_TRUE(arrays.error().message.starts_with(
      "[mosaic] queries of a device must be the kernel's "))
      << arrays.error().message;
}

}  // namespace
}  // namespace tessera::mosaic
