// lanes/mosaic/lane_test.cc: the TPU kernel behind a session, on a plugin that
// says it is a TPU and runs, in the kernel's place, plain attention over the
// very arrays that the kernel would read.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/files.h"
#include "lanes/mosaic/settings.h"
#include "lanes/xla/writer.h"
#include "tessera/mosaic.h"
#include "tessera/receipt.h"
#include "tessera/session.h"
#include "tests/attention_case.h"
#include "tests/plugins.h"

namespace tessera::mosaic {
namespace {

using testing::AttentionArrays;
using testing::AttentionCase;
using xla::Compare;
using xla::Dims;
using xla::Element;
using xla::Value;

constexpr int64_t kDim = 128;

// What the kernels compute, over their arrays and no others: a pair is legal
// where its tile is in the list, its key lies within the bounds and its ids are
// equal.
class Plain {
 public:
  explicit Plain(const MosaicKernel& kernel)
      : k_(kernel),
        s_(kernel.call.shape),
        backward_(kernel.call.backward),
        w_(arguments()) {}

  // causal: no lower bound, and an upper one.
  std::string program() { return backward_ ? gradients() : output(); }

 private:
  std::vector<xla::Argument> arguments() const {
    const auto ints = [](Dims dims) {
      return xla::Type{Element::i32, std::move(dims)};
    };
    const xla::Type queries = {Element::bf16,
                               {k_.batch, s_.heads, k_.q_len, kDim}},
                    keys = {Element::bf16,
                            {k_.batch, s_.kv_heads, k_.kv_len, kDim}},
                    lines = {Element::f32, {k_.batch, s_.heads, 1, k_.q_len}};
    std::vector<xla::Argument> out = {{"steps", ints({k_.steps})},
                                      {"range", ints({k_.batch + 1})},
                                      {"bounds", ints({k_.batch + 2})},
                                      {"q", queries},
                                      {"k", keys},
                                      {"v", keys}};
    if (backward_) {
      out.insert(out.end(),
                 {{"out", queries}, {"dout", queries}, {"lse", lines}});
      if (k_.call.dlse) out.push_back({"dlse", lines});
    }
    out.push_back({"q_ids", ints({k_.batch, k_.q_len / 128, 128})});
    out.push_back({"kv_ids", ints({k_.batch, k_.kv_len / 128, 128})});
    return out;
  }

  // [batch, queries, keys].
  Value legal() {
    // [batch, steps, rows, columns]: step s of batch row b is that tile. Of the
    // transposed list rows are tiles of keys.
    const int64_t q_tiles = k_.q_len / k_.tile.q,
                  kv_tiles = k_.kv_len / k_.tile.kv;
    const Dims tiles = {k_.batch, k_.steps, q_tiles, kv_tiles};
    const auto field = [&](int32_t at, int32_t width) {
      return w_.broadcast(w_.bits(w_.argument("steps"), at, width), tiles, {1});
    };
    const auto ends = [&](int32_t from) {
      const std::vector<Value> first = {w_.integer(from)};
      return w_.broadcast(w_.slice(w_.argument("range"), first, {k_.batch}),
                          tiles, {0});
    };
    const Value number = w_.iota(tiles, 1);
    Value listed =
        w_.both(w_.compare(Compare::greater_or_equal, number, ends(0)),
                w_.compare(Compare::less, number, ends(1)));
    listed = w_.both(listed, w_.compare(Compare::equal, field(18, 14),
                                        w_.iota(tiles, backward_ ? 3 : 2)));
    listed = w_.both(listed, w_.compare(Compare::equal, field(4, 14),
                                        w_.iota(tiles, backward_ ? 2 : 3)));
    listed = w_.both(listed, w_.compare(Compare::greater, field(2, 2),
                                        w_.integer(0, tiles)));

    const Dims pairs = {k_.batch, k_.q_len, k_.kv_len};
    Value legal = w_.reshape(
        w_.broadcast(w_.reduce_any(listed, {1}),
                     {k_.batch, q_tiles, k_.tile.q, kv_tiles, k_.tile.kv},
                     {0, 1, 3}),
        pairs);
    const Value q_ids = w_.reshape(w_.argument("q_ids"), {k_.batch, k_.q_len});
    const Value kv_ids =
        w_.reshape(w_.argument("kv_ids"), {k_.batch, k_.kv_len});
    legal = w_.both(
        legal, w_.compare(Compare::equal, w_.broadcast(q_ids, pairs, {0, 1}),
                          w_.broadcast(kv_ids, pairs, {0, 2})));
    const std::vector<Value> second = {w_.integer(2)};
    const Value offsets = w_.slice(w_.argument("bounds"), second, {k_.batch});
    const Value position =
        w_.add(w_.iota(pairs, 1), w_.broadcast(offsets, pairs, {0}));
    const Value most = w_.broadcast(
        w_.element(w_.argument("bounds"), w_.integer(1)), pairs, {});
    return w_.both(legal,
                   w_.compare(Compare::less_or_equal,
                              w_.sub(w_.iota(pairs, 2), position), most));
  }

  // What no legal pair reads may be anything, so 0 stands in for it.
  Value finite(std::string_view name) {
    const Value x = w_.convert(w_.argument(name), Element::f32);
    return w_.select(w_.is_finite(x), x, w_.real(0, x.dims()));
  }
  // Of K/V heads for every query head, and the sum back.
  Value spread(const Value& x) {
    const int64_t group = s_.heads / s_.kv_heads;
    return w_.reshape(
        w_.broadcast(x, {k_.batch, s_.kv_heads, group, k_.kv_len, kDim},
                     {0, 1, 3, 4}),
        {k_.batch, s_.heads, k_.kv_len, kDim});
  }
  Value gathered(const Value& x) {
    const int64_t group = s_.heads / s_.kv_heads;
    return w_.reduce_sum(
        w_.reshape(x, {k_.batch, s_.kv_heads, group, k_.kv_len, kDim}), {2});
  }
  Dims pairs() const { return {k_.batch, s_.heads, k_.q_len, k_.kv_len}; }
  Value scores() {
    return w_.mul(
        w_.dot(finite("q"), spread(finite("k")), {{0, 1}, {0, 1}, {3}, {3}}),
        w_.real(scale(), pairs()));
  }
  static float scale() { return 1 / std::sqrt(static_cast<float>(kDim)); }
  Value over_keys(const Value& x) {
    return w_.broadcast(x, pairs(), {0, 1, 2});
  }

  std::string output() {
    const Dims rows = {k_.batch, s_.heads, k_.q_len};
    const Value mask = w_.broadcast(legal(), pairs(), {0, 2, 3});
    const Value s = w_.select(mask, scores(), w_.real(-1e30F, pairs()));
    const Value most = w_.reduce_max(s, {3});
    const Value p = w_.select(mask, w_.exp(w_.sub(s, over_keys(most))),
                              w_.real(0, pairs()));
    const Value sum = w_.reduce_sum(p, {3});
    const Value live = w_.compare(Compare::greater, sum, w_.real(0, rows));
    const Value divisor = w_.select(live, sum, w_.real(1, rows));
    const Value out =
        w_.dot(p, spread(finite("v")), {{0, 1}, {0, 1}, {3}, {2}});
    const Value lse = w_.select(live, w_.add(most, w_.log(divisor)),
                                w_.real(-__builtin_inff(), rows));
    return w_.module(
        "plain",
        {w_.convert(w_.div(out, w_.broadcast(divisor, out.dims(), {0, 1, 2})),
                    Element::bf16),
         w_.reshape(lse, {k_.batch, s_.heads, 1, k_.q_len})});
  }

  std::string gradients() {
    const Dims rows = {k_.batch, s_.heads, k_.q_len};
    const Value mask = w_.broadcast(legal(), pairs(), {0, 2, 3});
    const Value lse = w_.reshape(finite("lse"), rows);
    const Value p = w_.select(mask, w_.exp(w_.sub(scores(), over_keys(lse))),
                              w_.real(0, pairs()));
    const Value dout = finite("dout");
    Value delta = w_.reduce_sum(w_.mul(finite("out"), dout), {3});
    if (k_.call.dlse) {
      delta = w_.sub(delta, w_.reshape(finite("dlse"), rows));
    }
    const Value dp =
        w_.dot(dout, spread(finite("v")), {{0, 1}, {0, 1}, {3}, {3}});
    const Value ds = w_.mul(w_.mul(p, w_.sub(dp, over_keys(delta))),
                            w_.real(scale(), pairs()));
    const Value dq =
        w_.dot(ds, spread(finite("k")), {{0, 1}, {0, 1}, {3}, {2}});
    const Value dk = w_.dot(ds, finite("q"), {{0, 1}, {0, 1}, {2}, {2}});
    const Value dv = w_.dot(p, dout, {{0, 1}, {0, 1}, {2}, {2}});
    return w_.module("plain", {w_.convert(dq, Element::bf16),
                               w_.convert(gathered(dk), Element::bf16),
                               w_.convert(gathered(dv), Element::bf16)});
  }

  const MosaicKernel& k_;
  const AttentionShape& s_;
  bool backward_;
  xla::Writer w_;
};

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
        at < 290
            ? static_cast<int32_t>(
                  at / (i < 300 ? 70 + 3 * static_cast<int64_t>(seed) : 150))
            : -1);
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
    std::filesystem::remove(program_);
    std::filesystem::remove(program_ + ".backward");
  }

  static SessionOptions options() {
    SessionOptions out;
    out.lane = LaneId::mosaic;
    out.xla.plugin = testing::fake_plugin("tpu");
    return out;
  }

  // Of the kernels that the lane will make for this batch.
  void write_plain(const Batch& batch, AttentionCall call) {
    Request request = batch.request();
    request.ceilings.max_steps = make_contract(batch)->steps;
    const bool gradients = call.backward;
    for (const bool backward : {false, true}) {
      if (backward && !gradients) continue;
      call.backward = backward;
      const auto kernel =
          make_mosaic_kernel(request, batch.facts(), call, "v6e:1x1",
                             choose_passes(request, call).setting.options);
      ASSERT_TRUE(kernel.ok()) << kernel.error().message;
      ASSERT_TRUE(write_file(program_ + (backward ? ".backward" : ""),
                             Plain(*kernel).program())
                      .ok());
    }
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
    const AttentionCall call = {arrays.c.shape, Dtype::bf16, false, true};
    write_plain(*batch, call);
    auto ready = session->prepare(*batch, call);
    ASSERT_TRUE(ready.ok()) << ready.error().message;
    EXPECT_EQ(ready->lane(), LaneId::mosaic);
    const testing::Wanted want = testing::wanted(arrays, true);
    arrays.clear_outputs();
    const auto saved = ready->forward(arrays.forward(true));
    ASSERT_TRUE(saved.ok()) << saved.error().message;
    EXPECT_EQ(testing::forward_fault(want, arrays.forward(true)), std::nullopt);
    EXPECT_EQ(ready->counters().tiles_run,
              4 * static_cast<int64_t>(batch->plan().forward.entries.size()));
    const lanes::BackwardTensors t = arrays.backward();
    const Gradients gradients = {t.dout, {}, t.dq, t.dk, t.dv, {}};
    const auto done = ready->backward(*saved, gradients);
    ASSERT_TRUE(done.ok()) << done.error().message;
    EXPECT_EQ(testing::backward_fault(arrays.c, want, t), std::nullopt);
    EXPECT_EQ(arrays.spilled(), std::nullopt);
    for (const bool backward : {false, true}) {
      const auto text = ready->program_text(backward);
      ASSERT_TRUE(text.ok()) << text.error().message;
      EXPECT_NE(text->find("@tpu_custom_call"), std::string::npos);
    }
    const auto receipt = ready->receipt(*saved, &gradients);
    ASSERT_TRUE(receipt.ok()) << receipt.error().message;
    const auto form = check_receipt(*receipt);
    EXPECT_TRUE(form.ok()) << form.error().message;
    // Other documents, the same contract: the same programs.
    compiles += ready->counters().compiles;
    EXPECT_EQ(compiles, 2);
  }
  EXPECT_EQ(testing::counted(testing::fake_plugin("tpu"), "replaced_programs"),
            2);
}

// A batch of 700 tokens with the tile of a row takes that row's passes, in the
// program, in what is warmed and in words.
TEST_F(MosaicLane, TakesTheTablesPasses) {
  AttentionCase c = packed_case(testing::Layout::bhsd, 1);
  c.plan.batch = 1;
  c.plan.q_len = c.plan.kv_len = 700;
  c.plan.tile = {256, 256};
  c.plan.doc_ids->assign(700, 1);
  AttentionArrays arrays(c);
  const auto batch = BorrowedBatch::make(arrays.request, arrays.facts);
  ASSERT_TRUE(batch.ok()) << batch.error().message;
  const AttentionCall call = {c.shape, Dtype::bf16, false, false};
  write_plain(*batch, call);
  Request request = batch->request();
  request.ceilings.max_steps = make_contract(*batch)->steps;
  const auto kernel =
      make_mosaic_kernel(request, batch->facts(), call, "v6e:1x1", {2, 4});
  ASSERT_TRUE(kernel.ok()) << kernel.error().message;
  auto session = Session::open(options());
  ASSERT_TRUE(session.ok()) << session.error().message;
  const auto warmed = session->warm(request, batch->facts(), call);
  ASSERT_TRUE(warmed.ok()) << warmed.error().message;
  EXPECT_EQ(warmed->compiles, 1);
  auto ready = session->prepare(*batch, call);
  ASSERT_TRUE(ready.ok()) << ready.error().message;
  EXPECT_EQ(*ready->program_text(), kernel->program);
  EXPECT_EQ(ready->counters().compiles, 0);
  const auto saved = ready->forward(arrays.forward(true));
  ASSERT_TRUE(saved.ok()) << saved.error().message;
  const auto receipt = ready->receipt(*saved);
  ASSERT_TRUE(receipt.ok()) << receipt.error().message;
  const auto settings = nlohmann::json::parse(*receipt)["settings"];
  EXPECT_EQ(settings,
            nlohmann::json(
                {{"forward", "2 tiles a pass: the table, for 32 keys a query"},
                 {"tile", "the request"}}));
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
  EXPECT_EQ(why({arrays.c.shape, Dtype::bf16, true, false}),
            "[dispatch] the mosaic lane must be able to run this, found: it "
            "has no sink logits");
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
}  // namespace tessera::mosaic
