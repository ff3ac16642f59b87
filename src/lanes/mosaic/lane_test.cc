// lanes/mosaic/lane_test.cc: the TPU kernel behind a session, on a plugin that
// says it is a TPU and runs, in the kernel's place, plain attention over the
// very arrays that the kernel would read.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/files.h"
#include "lanes/xla/writer.h"
#include "tessera/mosaic.h"
#include "tessera/receipt.h"
#include "tessera/session.h"
#include "tests/attention_case.h"
#include "tests/plugins.h"

namespace tessera {
namespace {

using testing::AttentionArrays;
using testing::AttentionCase;
using xla::Compare;
using xla::Dims;
using xla::Element;
using xla::Value;

constexpr int64_t kDim = 128;

// What the kernel computes, over its arrays and no others: a pair is legal
// where its tile is in the list, its key lies within the bounds and its ids are
// equal.
std::string plain_program(const MosaicKernel& kernel, int64_t heads,
                          int64_t kv_heads, bool low, bool high) {
  const int64_t batch = kernel.batch, queries = kernel.q_len,
                keys = kernel.kv_len, steps = kernel.steps;
  const int64_t rows = queries / kernel.tile.q, columns = keys / kernel.tile.kv;
  const auto ints = [](Dims dims) {
    return xla::Type{Element::i32, std::move(dims)};
  };
  const auto numbers = [](Dims dims) {
    return xla::Type{Element::bf16, std::move(dims)};
  };
  xla::Writer w({{"steps", ints({steps})},
                 {"range", ints({batch + 1})},
                 {"bounds", ints({batch + 2})},
                 {"q", numbers({batch, heads, queries, kDim})},
                 {"k", numbers({batch, kv_heads, keys, kDim})},
                 {"v", numbers({batch, kv_heads, keys, kDim})},
                 {"q_ids", ints({batch, queries / 128, 128})},
                 {"kv_ids", ints({batch, keys / 128, 128})}});

  // [batch, steps, rows, columns]: step s of batch row b is that tile.
  const Dims tiles = {batch, steps, rows, columns};
  const auto field = [&](int32_t at, int32_t width) {
    return w.broadcast(w.bits(w.argument("steps"), at, width), tiles, {1});
  };
  const auto ends = [&](int64_t from) {
    const Value first = w.integer(static_cast<int32_t>(from));
    return w.broadcast(
        w.slice(w.argument("range"), std::vector{first}, {batch}), tiles, {0});
  };
  const Value number = w.iota(tiles, 1);
  Value listed = w.both(w.compare(Compare::greater_or_equal, number, ends(0)),
                        w.compare(Compare::less, number, ends(1)));
  listed = w.both(listed,
                  w.compare(Compare::equal, field(18, 14), w.iota(tiles, 2)));
  listed =
      w.both(listed, w.compare(Compare::equal, field(4, 14), w.iota(tiles, 3)));
  listed = w.both(
      listed, w.compare(Compare::greater, field(2, 2), w.integer(0, tiles)));
  const Value active = w.reduce_any(listed, {1});  // [batch, rows, columns]

  const Dims pairs = {batch, queries, keys};
  Value legal = w.reshape(
      w.broadcast(active, {batch, rows, kernel.tile.q, columns, kernel.tile.kv},
                  {0, 1, 3}),
      pairs);
  const Value q_ids = w.reshape(w.argument("q_ids"), {batch, queries});
  const Value kv_ids = w.reshape(w.argument("kv_ids"), {batch, keys});
  legal =
      w.both(legal, w.compare(Compare::equal, w.broadcast(q_ids, pairs, {0, 1}),
                              w.broadcast(kv_ids, pairs, {0, 2})));
  const Value offsets =
      w.slice(w.argument("bounds"), std::vector{w.integer(2)}, {batch});
  const Value distance =
      w.sub(w.iota(pairs, 2),
            w.add(w.iota(pairs, 1), w.broadcast(offsets, pairs, {0})));
  const auto bound = [&](int32_t at) {
    return w.broadcast(w.element(w.argument("bounds"), w.integer(at)), pairs,
                       {});
  };
  if (low) {
    legal =
        w.both(legal, w.compare(Compare::greater_or_equal, distance, bound(0)));
  }
  if (high) {
    legal =
        w.both(legal, w.compare(Compare::less_or_equal, distance, bound(1)));
  }

  // What no legal pair reads may be anything, so 0 stands in for it.
  const auto finite = [&](std::string_view name) {
    const Value x = w.convert(w.argument(name), Element::f32);
    return w.select(w.is_finite(x), x, w.real(0, x.dims()));
  };
  const int64_t group = heads / kv_heads;
  const auto each_head = [&](const Value& x) {
    return w.reshape(
        w.broadcast(x, {batch, kv_heads, group, keys, kDim}, {0, 1, 3, 4}),
        {batch, heads, keys, kDim});
  };
  const Dims scores = {batch, heads, queries, keys},
             top = {batch, heads, queries};
  const Value s = w.mul(
      w.dot(finite("q"), each_head(finite("k")), {{0, 1}, {0, 1}, {3}, {3}}),
      w.real(1 / std::sqrt(static_cast<float>(kDim)), scores));
  const Value mask = w.broadcast(legal, scores, {0, 2, 3});
  constexpr float kNone = -1e30F;
  const Value masked = w.select(mask, s, w.real(kNone, scores));
  const Value most = w.reduce_max(masked, {3});
  const Value p =
      w.select(mask, w.exp(w.sub(masked, w.broadcast(most, scores, {0, 1, 2}))),
               w.real(0, scores));
  const Value sum = w.reduce_sum(p, {3});
  const Value live = w.compare(Compare::greater, sum, w.real(0, top));
  const Value out =
      w.dot(p, each_head(finite("v")), {{0, 1}, {0, 1}, {3}, {2}});
  const Value divisor = w.select(live, sum, w.real(1, top));
  const Value lse = w.select(live, w.add(most, w.log(divisor)),
                             w.real(-__builtin_inff(), top));
  return w.module(
      "plain",
      {w.convert(w.div(out, w.broadcast(divisor, out.dims(), {0, 1, 2})),
                 Element::bf16),
       w.reshape(lse, {batch, heads, 1, queries})});
}

AttentionCase packed_case(testing::Layout layout, uint64_t seed) {
  AttentionCase c;
  c.plan.masks = {causal() & documents()};
  c.plan.batch = 2;
  c.plan.q_len = 300;
  c.plan.kv_len = 300;
  c.plan.tile = {128, 128};
  c.plan.doc_ids.emplace();
  for (int64_t i = 0; i < 2 * 300; ++i) {
    const int64_t at = i % 300;
    c.plan.doc_ids->push_back(
        at < 290 ? static_cast<int32_t>(at / (i < 300 ? 70 : 150)) : -1);
  }
  c.shape = {4, 2, kDim, kDim, {}, 0};
  c.dtype = Dtype::bf16;
  c.layout = layout;
  c.seed = seed;
  return c;
}

class MosaicLane : public ::testing::Test {
 protected:
  void SetUp() override {
    TESSERA_NEEDS_PLUGINS();
    testing::look_in_venv();
    const auto real = testing::real_plugin("xla_cpu_pjrt");
    if (testing::is_absent(real)) GTEST_SKIP() << real.error().message;
    ASSERT_TRUE(real.ok()) << real.error().message;
    setenv("TESSERA_TEST_WRAPPED_PLUGIN", (*real)->path().c_str(), 1);
    program_ = ::testing::TempDir() + "/plain_" + std::to_string(getpid());
    setenv("TESSERA_TEST_TPU_PROGRAM", program_.c_str(), 1);
  }
  void TearDown() override {
    unsetenv("TESSERA_TEST_TPU_KIND");
    if (!program_.empty()) unlink(program_.c_str());
  }

  static SessionOptions options() {
    SessionOptions out;
    out.lane = LaneId::mosaic;
    out.xla.plugin = testing::fake_plugin("tpu");
    return out;
  }

  // Of the kernel that the lane will make for this batch.
  void write_plain(const Batch& batch, const AttentionShape& shape) {
    Request request = batch.request();
    request.ceilings.max_steps = make_contract(batch)->steps;
    const auto kernel = make_mosaic_kernel(request, batch.facts(),
                                           {shape, Dtype::bf16}, "v6e:1x1");
    ASSERT_TRUE(kernel.ok()) << kernel.error().message;
    ASSERT_TRUE(write_file(program_, plain_program(*kernel, shape.heads,
                                                   shape.kv_heads, false, true))
                    .ok());
  }

  std::string program_;
};

TEST_F(MosaicLane, RunsBatchesOfOneContractOnOneProgram) {
  auto session = Session::open(options());
  ASSERT_TRUE(session.ok()) << session.error().message;
  EXPECT_EQ(session->place()->platform, "tpu");
  int64_t compiles = 0;
  for (const auto layout : {testing::Layout::bhsd, testing::Layout::bshd,
                            testing::Layout::padded}) {
    const auto seed = static_cast<uint64_t>(layout) + 1;
    AttentionArrays arrays(packed_case(layout, seed));
    const auto batch = BorrowedBatch::make(arrays.request, arrays.facts);
    ASSERT_TRUE(batch.ok()) << batch.error().message;
    write_plain(*batch, arrays.c.shape);
    auto ready =
        session->prepare(*batch, {arrays.c.shape, Dtype::bf16, false, false});
    ASSERT_TRUE(ready.ok()) << ready.error().message;
    EXPECT_EQ(ready->lane(), LaneId::mosaic);
    arrays.clear_outputs();
    const auto saved = ready->forward(arrays.forward(true));
    ASSERT_TRUE(saved.ok()) << saved.error().message;
    EXPECT_EQ(testing::forward_fault(testing::wanted(arrays, true),
                                     arrays.forward(true)),
              std::nullopt);
    EXPECT_EQ(arrays.spilled(), std::nullopt);
    const Counters counters = ready->counters();
    compiles += counters.compiles;
    EXPECT_EQ(counters.tiles_run,
              4 * static_cast<int64_t>(batch->plan().forward.entries.size()));
    const auto text = ready->program_text();
    ASSERT_TRUE(text.ok()) << text.error().message;
    EXPECT_NE(text->find("@tpu_custom_call"), std::string::npos);
    const auto receipt = ready->receipt(*saved);
    ASSERT_TRUE(receipt.ok()) << receipt.error().message;
    const auto form = check_receipt(*receipt);
    EXPECT_TRUE(form.ok()) << form.error().message;
    // Other documents, the same contract: the same program.
    EXPECT_EQ(compiles, 1);
  }
  EXPECT_EQ(testing::counted(testing::fake_plugin("tpu"), "replaced_programs"),
            1);
}

TEST_F(MosaicLane, RefusesWhatItCannotRun) {
  AttentionArrays arrays(packed_case(testing::Layout::bhsd, 1));
  const auto batch = BorrowedBatch::make(arrays.request, arrays.facts);
  ASSERT_TRUE(batch.ok());
  auto session = Session::open(options());
  ASSERT_TRUE(session.ok()) << session.error().message;
  const auto why = [&](const AttentionCall& call) {
    const auto ready = session->prepare(*batch, call);
    return ready ? std::string() : ready.error().message;
  };
  EXPECT_EQ(why({arrays.c.shape, Dtype::bf16, false, true}),
            "[dispatch] the mosaic lane must be able to run this, found: it "
            "has no backward");
  EXPECT_EQ(why({arrays.c.shape, Dtype::f32, false, false}),
            "[dispatch] the mosaic lane must be able to run this, found: it "
            "has no arrays of f32");
}

TEST_F(MosaicLane, NeedsATpuOfAKindThatItKnows) {
  const auto why = [](const std::string& plugin) {
    SessionOptions o = options();
    o.xla.plugin = plugin;
    const auto session = Session::open(o);
    return session ? std::string() : session.error().message;
  };
  EXPECT_EQ(why(testing::fake_plugin("faulty")),
            "[mosaic] a TPU must be there to run its kernel, found a fake "
            "device");
  // A file of its own: a plugin's devices are read once.
  const std::string other =
      ::testing::TempDir() + "/other_tpu_" + std::to_string(getpid()) + ".so";
  std::filesystem::copy_file(testing::fake_plugin("tpu"), other);
  setenv("TESSERA_TEST_TPU_KIND", "TPU v99", 1);
  EXPECT_EQ(why(other),
            "[mosaic] a device must be a TPU v6 lite, found 'TPU v99'");
  std::filesystem::remove(other);
}

}  // namespace
}  // namespace tessera
