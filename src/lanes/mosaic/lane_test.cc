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
#include <tuple>
#include <vector>

#include "base/files.h"
#include "lanes/mosaic/settings.h"
#include "lanes/xla/writer.h"
#include "tessera/mosaic.h"
#include "tessera/receipt.h"
#include "tessera/session.h"
#include "tests/attention_case.h"
#include "tests/plain_kernel.h"
#include "tests/plugins.h"

namespace tessera::mosaic {
namespace {

using testing::AttentionArrays;
using testing::AttentionCase;

std::string plain_program(const MosaicKernel& kernel) {
  xla::Writer w(testing::PlainKernel::arguments(kernel));
  return w.module("plain", testing::PlainKernel(w, kernel, false).results());
}

AttentionCase packed_case(testing::Layout layout, uint64_t seed,
                          int64_t dim = 128, int64_t v_dim = 128,
                          Dtype dtype = Dtype::bf16) {
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
  c.shape = {4, 2, dim, v_dim, {}, 0};
  c.dtype = dtype;
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
    const bool gradients = call.backward, dlse = call.dlse;
    for (const bool backward : {false, true}) {
      if (backward && !gradients) continue;
      call.backward = backward;
      call.dlse = dlse && backward;
      const auto kernel =
          make_mosaic_kernel(request, batch.facts(), call, "v6e:1x1",
                             choose_passes(request, call).setting.options);
      ASSERT_TRUE(kernel.ok()) << kernel.error().message;
      ASSERT_TRUE(write_file(program_ + (backward ? ".backward" : ""),
                             plain_program(*kernel))
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

TEST_F(MosaicLane, HasOtherHeadDimsAndFloat32) {
  auto session = Session::open(options());
  ASSERT_TRUE(session.ok()) << session.error().message;
  for (const auto& [dim, v_dim, dtype] :
       {std::tuple(64, 64, Dtype::bf16), std::tuple(192, 128, Dtype::bf16),
        std::tuple(128, 128, Dtype::f32), std::tuple(64, 192, Dtype::f32)}) {
    AttentionArrays arrays(
        packed_case(testing::Layout::padded, 1, dim, v_dim, dtype));
    const auto batch = BorrowedBatch::make(arrays.request, arrays.facts);
    ASSERT_TRUE(batch.ok()) << batch.error().message;
    const AttentionCall call = {arrays.c.shape, dtype, false, true};
    write_plain(*batch, call);
    auto ready = session->prepare(*batch, call);
    ASSERT_TRUE(ready.ok()) << ready.error().message;
    const testing::Wanted want = testing::wanted(arrays, true);
    arrays.clear_outputs();
    const auto saved = ready->forward(arrays.forward(true));
    ASSERT_TRUE(saved.ok()) << saved.error().message;
    EXPECT_EQ(testing::forward_fault(want, arrays.forward(true)), std::nullopt);
    const lanes::BackwardTensors t = arrays.backward();
    const Gradients gradients = {t.dout, {}, t.dq, t.dk, t.dv, {}};
    const auto done = ready->backward(*saved, gradients);
    ASSERT_TRUE(done.ok()) << done.error().message;
    EXPECT_EQ(testing::backward_fault(arrays.c, want, t), std::nullopt);
    EXPECT_EQ(arrays.spilled(), std::nullopt);
  }
}

// Their gradient too, and that of the log-sum-exp beside it.
TEST_F(MosaicLane, TakesSinkLogits) {
  for (const bool dlse : {false, true}) {
    AttentionCase c = packed_case(testing::Layout::padded, 1);
    c.sinks = true;
    c.dlse = dlse;
    AttentionArrays arrays(c);
    const auto batch = BorrowedBatch::make(arrays.request, arrays.facts);
    ASSERT_TRUE(batch.ok()) << batch.error().message;
    const AttentionCall call = {c.shape, Dtype::bf16, true, true, dlse};
    write_plain(*batch, call);
    auto session = Session::open(options());
    ASSERT_TRUE(session.ok()) << session.error().message;
    auto ready = session->prepare(*batch, call);
    ASSERT_TRUE(ready.ok()) << ready.error().message;
    const testing::Wanted want = testing::wanted(arrays, true);
    arrays.clear_outputs();
    const auto saved = ready->forward(arrays.forward(true));
    ASSERT_TRUE(saved.ok()) << saved.error().message;
    EXPECT_EQ(testing::forward_fault(want, arrays.forward(true)), std::nullopt);
    const lanes::BackwardTensors t = arrays.backward();
    const Gradients gradients = {t.dout, t.dlse, t.dq,
                                 t.dk,   t.dv,   t.dsink_logits};
    const auto done = ready->backward(*saved, gradients);
    ASSERT_TRUE(done.ok()) << done.error().message;
    EXPECT_EQ(testing::backward_fault(c, want, t), std::nullopt);
    EXPECT_EQ(arrays.spilled(), std::nullopt);
    const auto receipt = ready->receipt(*saved, &gradients);
    ASSERT_TRUE(receipt.ok()) << receipt.error().message;
    EXPECT_EQ(nlohmann::json::parse(*receipt)["shape"]["sink_logits"], true);
  }
}

// Bitmaps are sent where the program has them, here with a softcap; this plain
// program does not read them, but its mask, causal to all effects, is in the
// list and the bounds too.
TEST_F(MosaicLane, SendsBitmaps) {
  AttentionCase c = packed_case(testing::Layout::bhsd, 1);
  c.plan.masks = {causal() & chunk(1024)};
  c.plan.doc_ids.reset();
  c.shape.softcap = 2;
  AttentionArrays arrays(c);
  const auto batch = BorrowedBatch::make(arrays.request, arrays.facts);
  ASSERT_TRUE(batch.ok()) << batch.error().message;
  const AttentionCall call = {c.shape, Dtype::bf16, false, true};
  write_plain(*batch, call);
  auto session = Session::open(options());
  ASSERT_TRUE(session.ok()) << session.error().message;
  auto ready = session->prepare(*batch, call);
  ASSERT_TRUE(ready.ok()) << ready.error().message;
  EXPECT_NE(ready->program_text()->find("%bits_of: tensor<"),
            std::string::npos);
  const testing::Wanted want = testing::wanted(arrays, true);
  arrays.clear_outputs();
  const auto saved = ready->forward(arrays.forward(true));
  ASSERT_TRUE(saved.ok()) << saved.error().message;
  EXPECT_EQ(testing::forward_fault(want, arrays.forward(true)), std::nullopt);
  const lanes::BackwardTensors t = arrays.backward();
  const Gradients gradients = {t.dout, {}, t.dq, t.dk, t.dv, {}};
  const auto done = ready->backward(*saved, gradients);
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_EQ(testing::backward_fault(arrays.c, want, t), std::nullopt);
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
      make_mosaic_kernel(request, batch->facts(), call, "v6e:1x1", {1, 4});
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
                {{"forward", "1 tiles a pass: the table, for 32 keys a query"},
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
  EXPECT_EQ(why({arrays.c.shape, Dtype::f16, false, false}),
            "[dispatch] the mosaic lane must be able to run this, found: it "
            "has no arrays of f16");
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
  EXPECT_EQ(why(other), "[mosaic] a device must be a TPU v6e, found 'TPU v99'");
  std::filesystem::remove(other);
}

}  // namespace
}  // namespace tessera::mosaic
