// lanes/mosaic/lane_test.cc: the TPU kernel behind a session. The plugin says
// it is a TPU and runs plain attention instead of the kernel, over the arrays
// that the kernel would read.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "base/files.h"
#include "lanes/mosaic/kernel.h"
#include "lanes/mosaic/settings.h"
#include "lanes/reference/sink_row.h"
#include "lanes/xla/writer.h"
#include "receipt/read.h"
#include "run/probe.h"
#include "tessera/machine.h"
#include "tessera/mosaic.h"
#include "tessera/receipt.h"
#include "tessera/session.h"
#include "tests/attention_case.h"
#include "tests/heap.h"
#include "tests/judged_passes.h"
#include "tests/plugins.h"
#include "tests/spans.h"
#include "tests/stablehlo_kernel.h"

namespace tessera::mosaic {
namespace {

using testing::AttentionArrays;
using testing::AttentionCase;

// The reason for the cases' tile, 128x128.
constexpr const char* kReason = "a test of few tokens";

std::string stablehlo_program(const MosaicKernel& kernel) {
  xla::Writer w(testing::StablehloKernel::arguments(kernel));
  return w.module("plain",
                  testing::StablehloKernel(w, kernel, false).results());
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

// More than the bound of a lane that adds sink logits to its own sums: here the
// log-sum-exp L of the keys is stored first, which changes the keys' share a by
// a (1 - a) u |L|, and the entropy by that times H + |L - z| at most.
std::optional<std::string> telemetry_fault(
    const std::vector<reference::SinkRow>& want, const SinkTelemetry& got,
    AttentionArrays& arrays) {
  std::vector<reference::Expected> mass, entropy;
  const auto keys = static_cast<double>(arrays.request.kv_len);
  for (size_t i = 0; i < want.size(); ++i) {
    mass.push_back(want[i].mass);
    entropy.push_back(want[i].entropy);
    if (!want[i].live) continue;
    mass.back().error += keys * reference::kTiny32;
    const double lse = std::abs(double{arrays.forward(true).lse[i]}) + 4;
    entropy.back().error += reference::kEps32 * lse * (std::log(keys) + lse);
  }
  for (auto f : {testing::values_fault("mass", mass, got.mass),
                 testing::values_fault("entropy", entropy, got.entropy)}) {
    if (f) return f;
  }
  return {};
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
    for (const std::string& file : copies_) std::filesystem::remove(file);
    std::filesystem::remove(program_);
    std::filesystem::remove(program_ + ".backward");
    std::filesystem::remove(program_ + ".sinks");
  }

  static SessionOptions options() {
    SessionOptions out;
    out.lane = LaneId::mosaic;
    out.xla.plugin = testing::fake_plugin("tpu");
    out.xla.lowering_reason = kReason;
    return out;
  }

  // Each kind gets a file of its own, because a plugin's devices are read once.
  std::string plugin_of_kind(const std::string& kind) {
    setenv("TESSERA_TEST_TPU_KIND", kind.c_str(), 1);
    static int made = 0;
    copies_.push_back(
        fmt::format("{}/tpu_{}_{}.so", ::testing::TempDir(), getpid(), made++));
    std::filesystem::copy_file(
        testing::fake_plugin("tpu"), copies_.back(),
        std::filesystem::copy_options::overwrite_existing);
    return copies_.back();
  }

  // Writes programs in place of the kernels that the lane will make for this
  // batch.
  void write_stablehlo(const Batch& batch, AttentionCall call,
                       const Chip& chip = *find_chip("v6e"),
                       Numbers numbers = Numbers::any,
                       RowSum row_sum = RowSum::exact) {
    Request request = batch.request();
    request.ceilings.max_steps = make_contract(batch)->steps;
    const AttentionCall whole = call;
    for (const std::string suffix : {"", ".backward", ".sinks"}) {
      const bool backward = suffix == ".backward", sinks = suffix == ".sinks";
      if (backward && !whole.backward) continue;
      if (sinks && !whole.sink_telemetry) continue;
      call.backward = backward;
      call.dlse = whole.dlse && backward;
      call.sink_telemetry = sinks;
      call.sink_logits = whole.sink_logits && !sinks;
      const std::string target(chip.target);
      const auto reason = is_below_granule(request.tile, chip.granule)
                              ? std::optional<std::string>(kReason)
                              : std::nullopt;
      const MosaicOptions options =
          fit_passes(request, batch.facts(), call, target,
                     {reason, numbers, row_sum})
              .setting.options;
      const auto kernel =
          make_mosaic_kernel(request, batch.facts(), call, target, options);
      ASSERT_TRUE(kernel.ok()) << kernel.error().message;
      keys_[direction_of(call)] = kernel->contract.key;
      ASSERT_TRUE(
          write_file(program_ + suffix, stablehlo_program(*kernel)).ok());
    }
  }

  std::string program_;
  std::vector<std::string> copies_;
  std::map<std::string, std::string> keys_;  // kernel keys by direction
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
    write_stablehlo(*batch, call);
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
    const Gradients gradients = arrays.gradients();
    const auto done = ready->backward(*saved, gradients);
    ASSERT_TRUE(done.ok()) << done.error().message;
    EXPECT_EQ(testing::backward_fault(arrays.c, want, gradients), std::nullopt);
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
    // Batches with other documents have the same contract and the same
    // programs.
    compiles += ready->counters().compiles;
    EXPECT_EQ(compiles, 2);
  }
  EXPECT_EQ(testing::counted(testing::fake_plugin("tpu"), "replaced_programs"),
            2);
}

TEST_F(MosaicLane, LayersRunTheirProgramsAndNothingElse) {
  const auto session = Session::open(options());
  ASSERT_TRUE(session.ok()) << session.error().message;
  AttentionArrays arrays(packed_case(testing::Layout::bhsd, 1));
  const auto batch = OwnedBatch::copy(arrays.request, arrays.facts);
  ASSERT_TRUE(batch.ok()) << batch.error().message;
  const AttentionCall call = {arrays.c.shape, Dtype::bf16, false, true};
  write_stablehlo(*batch, call);
  const Trace trace;
  auto ready = session->prepare(*batch, call);
  ASSERT_TRUE(ready.ok()) << ready.error().message;
  const auto prepared = testing::spans_of(trace);
  // One per direction, as each may have its own tile.
  EXPECT_EQ(prepared.at("plan contract"), 2);
  EXPECT_EQ(prepared.at("pjrt compile"), 2);
  const auto run_layers = [&](int layers) {
    for (int i = 0; i < layers; ++i) {
      const auto saved = ready->forward(arrays.forward(true));
      ASSERT_TRUE(saved.ok()) << saved.error().message;
      const auto ran = ready->backward(*saved, arrays.gradients());
      ASSERT_TRUE(ran.ok()) << ran.error().message;
    }
  };
  run_layers(32);
  std::map<std::string, int> layers = testing::spans_of(trace);
  for (const auto& [name, count] : prepared) layers[name] -= count;
  std::erase_if(layers, [](const auto& span) {
    return span.second == 0 || span.first.starts_with("pjrt to_");
  });
  EXPECT_EQ(layers, (std::map<std::string, int>{{"run forward", 32},
                                                {"run backward", 32},
                                                {"mosaic forward", 32},
                                                {"mosaic backward", 32},
                                                {"pjrt execute", 64}}));
  // Less memory is left over than the smallest array of each layer takes.
  EXPECT_LT(testing::least_left_by([&] { run_layers(16); }),
            static_cast<int64_t>(16 * arrays.forward(true).lse.size_bytes()));
  EXPECT_TRUE(testing::judge_passes(*ready, arrays).ok());
}

TEST_F(MosaicLane, AStopFlagThatIsSetStopsAndThenItRuns) {
  const auto session = Session::open(options());
  ASSERT_TRUE(session.ok()) << session.error().message;
  AttentionArrays arrays(packed_case(testing::Layout::bhsd, 1));
  const auto batch = OwnedBatch::copy(arrays.request, arrays.facts);
  ASSERT_TRUE(batch.ok()) << batch.error().message;
  const AttentionCall call = {arrays.c.shape, Dtype::bf16, false, true};
  write_stablehlo(*batch, call);
  auto ready = session->prepare(*batch, call);
  ASSERT_TRUE(ready.ok()) << ready.error().message;
  StopFlag stop;
  stop.stop();
  const auto none = ready->forward(arrays.forward(true), &stop);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().kind, ErrorKind::stopped);
  const auto saved = ready->forward(arrays.forward(true));
  ASSERT_TRUE(saved.ok()) << saved.error().message;
  const auto neither = ready->backward(*saved, arrays.gradients(), &stop);
  ASSERT_FALSE(neither.ok());
  EXPECT_EQ(neither.error().kind, ErrorKind::stopped);
  EXPECT_TRUE(testing::judge_passes(*ready, arrays).ok());
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
    write_stablehlo(*batch, call);
    auto ready = session->prepare(*batch, call);
    ASSERT_TRUE(ready.ok()) << ready.error().message;
    const auto passes = testing::judge_passes(*ready, arrays);
    ASSERT_TRUE(passes.ok()) << passes.error().message;
  }
}

// The chunks are not asked for: dQ of all queries is too large for a v4.
TEST_F(MosaicLane, RunsGradientsInChunksOfQueries) {
  const Chip chip = *find_chip("v4");
  AttentionCase c;
  c.plan.masks = {causal() & documents()};
  c.plan.q_len = 8100;
  c.plan.kv_len = 300;
  c.plan.tile = {128, 128};
  c.plan.q_offsets = {0};  // else the last query would see the last key
  c.plan.doc_ids.emplace();
  c.plan.q_doc_ids.emplace();
  for (int32_t i = 0; i < 300; ++i) c.plan.doc_ids->push_back(i / 110);
  for (int32_t i = 0; i < 8100; ++i) c.plan.q_doc_ids->push_back(i / 2800);
  c.shape = {2, 1, 256, 128, {}, 0};
  c.dtype = Dtype::bf16;
  AttentionArrays arrays(c);
  const auto batch = BorrowedBatch::make(arrays.request, arrays.facts);
  ASSERT_TRUE(batch.ok()) << batch.error().message;
  const AttentionCall call = {c.shape, c.dtype, false, true};
  write_stablehlo(*batch, call, chip);
  SessionOptions o = options();
  o.xla.plugin = plugin_of_kind(std::string(chip.kind));
  o.xla.lowering_reason.reset();
  auto session = Session::open(o);
  ASSERT_TRUE(session.ok()) << session.error().message;
  auto ready = session->prepare(*batch, call);
  ASSERT_TRUE(ready.ok()) << ready.error().message;
  const std::string program = *ready->program_text(true);
  // The program does not return sums that wait between chunks.
  for (const char* part :
       {"%result:5 = ", "return %result#0, %result#1, %result#2 : "}) {
    EXPECT_NE(program.find(part), std::string::npos) << part;
  }
  const auto receipt = testing::judged_receipt(*ready, arrays);
  ASSERT_TRUE(receipt.ok()) << receipt.error().message;
  EXPECT_EQ(nlohmann::json::parse(*receipt)["kernels"]["backward"],
            keys_["backward"]);
}

// Also their gradient, and with it that of the log-sum-exp.
TEST_F(MosaicLane, TakesSinkLogits) {
  for (const bool dlse : {false, true}) {
    AttentionCase c = packed_case(testing::Layout::padded, 1);
    c.sinks = true;
    c.dlse = dlse;
    AttentionArrays arrays(c);
    const auto batch = BorrowedBatch::make(arrays.request, arrays.facts);
    ASSERT_TRUE(batch.ok()) << batch.error().message;
    const AttentionCall call = {c.shape, Dtype::bf16, true, true, dlse};
    write_stablehlo(*batch, call);
    auto session = Session::open(options());
    ASSERT_TRUE(session.ok()) << session.error().message;
    auto ready = session->prepare(*batch, call);
    ASSERT_TRUE(ready.ok()) << ready.error().message;
    const auto passes = testing::judge_passes(*ready, arrays);
    ASSERT_TRUE(passes.ok()) << passes.error().message;
    const auto receipt = ready->receipt(passes->saved, &passes->gradients);
    ASSERT_TRUE(receipt.ok()) << receipt.error().message;
    EXPECT_EQ(nlohmann::json::parse(*receipt)["shape"]["sink_logits"], true);
  }
}

// Checks telemetry, from the lists of all legal pairs and of the first keys
// with one program for every n, against fp64. The forward pass does not change.
TEST_F(MosaicLane, TellsWhereAttentionGoes) {
  const auto replaced = [] {
    return testing::counted(testing::fake_plugin("tpu"), "replaced_programs");
  };
  for (const bool sink_logits : {false, true}) {
    SCOPED_TRACE(sink_logits);
    const auto before = replaced();
    AttentionCase c = packed_case(testing::Layout::padded, 1);
    c.sinks = sink_logits;
    AttentionArrays arrays(c);
    const auto batch = BorrowedBatch::make(arrays.request, arrays.facts);
    ASSERT_TRUE(batch.ok()) << batch.error().message;
    AttentionCall call = {c.shape, Dtype::bf16, sink_logits, false};
    call.sink_telemetry = true;
    write_stablehlo(*batch, call);
    auto session = Session::open(options());
    ASSERT_TRUE(session.ok()) << session.error().message;
    AttentionCall without = call;
    without.sink_telemetry = false;
    auto plain = session->prepare(*batch, without);
    ASSERT_TRUE(plain.ok()) << plain.error().message;
    auto ready = session->prepare(*batch, call);
    ASSERT_TRUE(ready.ok()) << ready.error().message;
    EXPECT_EQ(ready->counters().compiles, 1);  // the forward one is cached
    EXPECT_EQ(*ready->program_text(), *plain->program_text());
    const auto saved = ready->forward(arrays.forward(true));
    ASSERT_TRUE(saved.ok()) << saved.error().message;
    std::optional<SinkTelemetry> last;
    for (const int64_t first : {1, 5, 200}) {
      const auto told = ready->sink_telemetry(*saved, first);
      ASSERT_TRUE(told.ok()) << told.error().message;
      const auto want =
          reference::sink_rows(*batch, c.shape, arrays.forward(true), first);
      ASSERT_TRUE(want.ok()) << want.error().message;
      EXPECT_EQ(telemetry_fault(*want, *told, arrays), std::nullopt) << first;
      last = *told;
    }
    EXPECT_EQ(replaced(), before + 2);
    const auto receipt = ready->receipt(*saved, nullptr, &*last);
    ASSERT_TRUE(receipt.ok()) << receipt.error().message;
    EXPECT_TRUE(check_receipt(*receipt))
        << check_receipt(*receipt).error().message;
    EXPECT_EQ(nlohmann::json::parse(*receipt)["sink_telemetry"]["first_keys"],
              200);
  }
}

// Bitmaps are sent where the program takes them, here with a softcap. The plain
// program does not read them, but its mask is causal in effect, which the list
// and the bounds say too.
TEST_F(MosaicLane, SendsBitmaps) {
  AttentionCase c = packed_case(testing::Layout::bhsd, 1);
  c.plan.masks = {causal() & chunk(1024)};
  c.plan.doc_ids.reset();
  c.shape.softcap = 2;
  AttentionArrays arrays(c);
  const auto batch = BorrowedBatch::make(arrays.request, arrays.facts);
  ASSERT_TRUE(batch.ok()) << batch.error().message;
  const AttentionCall call = {c.shape, Dtype::bf16, false, true};
  write_stablehlo(*batch, call);
  auto session = Session::open(options());
  ASSERT_TRUE(session.ok()) << session.error().message;
  auto ready = session->prepare(*batch, call);
  ASSERT_TRUE(ready.ok()) << ready.error().message;
  EXPECT_NE(ready->program_text()->find("%bits_of: tensor<"),
            std::string::npos);
  const auto passes = testing::judge_passes(*ready, arrays);
  ASSERT_TRUE(passes.ok()) << passes.error().message;
}

// A batch of 700 tokens with a row's tile takes the row's tiles a pass: in the
// program, in warm() and in the receipt's words.
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
  write_stablehlo(*batch, call);
  Request request = batch->request();
  request.ceilings.max_steps = make_contract(*batch)->steps;
  MosaicOptions due = {1, 4};
  due.numbers = Numbers::any;
  const auto kernel =
      make_mosaic_kernel(request, batch->facts(), call, "v6e:1x1", due);
  ASSERT_TRUE(kernel.ok()) << kernel.error().message;
  SessionOptions large = options();
  large.xla.lowering_reason.reset();
  auto session = Session::open(large);
  ASSERT_TRUE(session.ok()) << session.error().message;
  const auto warmed = session->warm(request, batch->facts(), call);
  ASSERT_TRUE(warmed.ok()) << warmed.error().message;
  EXPECT_EQ(warmed->compiles, 1);
  auto ready = session->prepare(*batch, call);
  ASSERT_TRUE(ready.ok()) << ready.error().message;
  EXPECT_EQ(*ready->program_text(), kernel->program_text);
  EXPECT_EQ(ready->counters().compiles, 0);
  const auto saved = ready->forward(arrays.forward(true));
  ASSERT_TRUE(saved.ok()) << saved.error().message;
  const auto receipt = ready->receipt(*saved);
  ASSERT_TRUE(receipt.ok()) << receipt.error().message;
  const auto settings = nlohmann::json::parse(*receipt)["settings"];
  EXPECT_EQ(settings,
            nlohmann::json(
                {{"forward",
                  "1 tiles a pass: the table, for 32 keys a query; borrowed, "
                  "for its rows are of finite numbers, heads with keys of "
                  "their own"},
                 {"tile", "the request"}}));
}

TEST_F(MosaicLane, ASmallTileNeedsAReasonWhichItsReceiptHas) {
  AttentionCase c = packed_case(testing::Layout::bhsd, 1);
  AttentionArrays arrays(c);
  const auto batch = BorrowedBatch::make(arrays.request, arrays.facts);
  ASSERT_TRUE(batch.ok()) << batch.error().message;
  const AttentionCall call = {c.shape, Dtype::bf16, false, false};
  write_stablehlo(*batch, call);
  SessionOptions o = options();
  o.xla.lowering_reason.reset();
  const std::string none =
      "[mosaic] a tile below the granule of v6e, 256x256, must come with a "
      "lowering reason, found none for 128x128, which pays 4 times its work";
  auto without = Session::open(o);
  ASSERT_TRUE(without.ok()) << without.error().message;
  auto refused = without->prepare(*batch, call);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, none);
  Request request = batch->request();
  request.ceilings.max_steps = make_contract(*batch)->steps;
  auto cold = without->warm(request, batch->facts(), call);
  ASSERT_FALSE(cold);
  EXPECT_EQ(cold.error().message, none);

  auto session = Session::open(options());
  ASSERT_TRUE(session.ok()) << session.error().message;
  auto ready = session->prepare(*batch, call);
  ASSERT_TRUE(ready.ok()) << ready.error().message;
  const auto saved = ready->forward(arrays.forward(true));
  ASSERT_TRUE(saved.ok()) << saved.error().message;
  const auto receipt = ready->receipt(*saved);
  ASSERT_TRUE(receipt.ok()) << receipt.error().message;
  EXPECT_TRUE(check_receipt(*receipt))
      << check_receipt(*receipt).error().message;
  const auto json = nlohmann::json::parse(*receipt);
  EXPECT_EQ(json["lowering"],
            nlohmann::json(
                {{"chip", "v6e"},
                 {"granule", 256},
                 {"tile", {128, 128}},
                 {"reason", kReason},
                 {"factor", 4.0},
                 {"paid_pairs", 4 * json["pairs"]["run"].get<int64_t>()}}));
  EXPECT_GT(json["pairs"]["run"], 0);

  // The receipt's fields must fit together even if its digest is right.
  struct Change {
    const char* field;
    nlohmann::json value;
    const char* why;
  };
  const char* const reason =
      "lowering.reason must be there for a tile or a logical block below the "
      "granule, and nowhere "
      "else";
  const char* const text =
      "lowering.reason must be a line of 1 to 200 bytes of printable UTF-8";
  for (const Change& change : {
           Change{"/lowering/reason", nullptr, reason},
           {"/lowering/reason", "",
            "lowering.reason must be null or a text, found an empty one"},
           {"/lowering/reason", " ", text},
           {"/lowering/reason", "two\nlines", text},
           {"/lowering/reason", std::string(201, 'a'), text},
           {"/lowering", nullptr,
            "lowering must be there where a known TPU took tiles, and nowhere "
            "else"},
           {"/lowering/granule", 128,
            "lowering must be of v6e, whose granule is 256"},
           {"/lowering/chip", "tpu7x",
            "lowering must be of v6e, whose granule is 256"},
           {"/lowering/tile",
            {256, 256},
            "lowering.tile must be the request's, 128x128"},
           {"/lowering/tile", nlohmann::json::array({128}),
            "lowering.tile must be queries and keys of a tile"},
           {"/lowering/factor", 1.0,
            "lowering.factor must be that of tile and granule"},
           {"/lowering/paid_pairs", 5,
            "lowering.paid_pairs must be pairs.run in whole granules"},
       }) {
    auto changed = json;
    changed[nlohmann::json::json_pointer(change.field)] = change.value;
    changed["receipt_digest"] = receipt::receipt_digest(changed);
    const auto found = check_receipt(changed.dump());
    ASSERT_FALSE(found) << change.field;
    EXPECT_NE(found.error().message.find(change.why), std::string::npos)
        << found.error().message;
  }
}

// A batch that no compiler could place is refused with its parts before a
// compile; on a CPU's plugin nothing is refused. Another lane may step in.
TEST_F(MosaicLane, ABatchWithoutRoomIsRefusedBeforeACompile) {
  Request request;
  request.masks = {*parse_mask("causal")};
  request.q_len = request.kv_len = 4096;
  request.tile = {256, 256};
  const auto batch = OwnedBatch::make(request, OwnedFacts());
  ASSERT_TRUE(batch.ok()) << batch.error().message;
  AttentionCall call;
  call.dtype = Dtype::bf16;
  call.backward = true;
  call.shape = {16384, 16384, 128, 128, {}, 0};
  const std::string tpu = testing::fake_plugin("tpu");
  // Programs compiled in this process; the count is negative before the plugin
  // is loaded.
  const auto compiled = [&] {
    return std::max<int64_t>(0, testing::counted(tpu, "replaced_programs"));
  };
  const auto before = compiled();
  const auto why = [&](LaneId lane, XlaMethod method) {
    SessionOptions o;
    o.lane = lane;
    o.xla.plugin = tpu;
    o.xla.method = method;
    const auto session = Session::open(o);
    if (!session) return session.error().message;
    const auto ready = session->prepare(*batch, call);
    return ready ? std::string() : ready.error().message;
  };
  for (const auto& [lane, method] : {std::pair(LaneId::mosaic, XlaMethod()),
                                     {LaneId::xla, XlaMethod::worklist},
                                     {LaneId::xla, XlaMethod::chunked}}) {
    const std::string found = why(lane, method);
    EXPECT_TRUE(
        found.starts_with("[fit] the backward pass must fit the 31.24 "
                          "GiB of a v6e device, found "))
        << found;
    EXPECT_NE(found.find("heads of a chip (a mesh's axis head) "), found.npos)
        << found;
  }
  // Scores alone are too large; the other programs never hold them all.
  call.backward = false;
  call.shape = {1024, 1024, 128, 128, {}, 0};
  const std::string found = why(LaneId::xla, XlaMethod::dense);
  EXPECT_NE(found.find("(a tile's scores and rows "), found.npos) << found;
  EXPECT_EQ(compiled(), before);

  SessionOptions lenient;
  lenient.lane = LaneId::xla;
  lenient.xla.plugin = tpu;
  lenient.xla.method = XlaMethod::dense;
  lenient.fallback = {LaneId::cpu};
  const auto session = Session::open(lenient);
  ASSERT_TRUE(session.ok()) << session.error().message;
  const auto ready = session->prepare(*batch, call);
  ASSERT_TRUE(ready.ok()) << ready.error().message;
  EXPECT_EQ(ready->lane(), LaneId::cpu);
  EXPECT_EQ(ready->fallback(), "xla did not start: " + found);
}

// The xla lane's program needs a reason too, where it has tiles.
TEST_F(MosaicLane, SoDoesTheXlaLaneOnATpu) {
  AttentionArrays arrays(packed_case(testing::Layout::bhsd, 1));
  const auto batch = BorrowedBatch::make(arrays.request, arrays.facts);
  ASSERT_TRUE(batch.ok()) << batch.error().message;
  const AttentionCall call = {arrays.c.shape, Dtype::bf16, false, false};
  const auto why = [&](XlaMethod method, std::optional<std::string> reason,
                       const std::string& plugin) {
    SessionOptions o = options();
    o.lane = LaneId::xla;
    o.xla.method = method;
    o.xla.plugin = plugin;
    o.xla.lowering_reason = std::move(reason);
    auto session = Session::open(o);
    if (!session) return session.error().message;
    auto ready = session->prepare(*batch, call);
    return ready ? std::string() : ready.error().message;
  };
  const std::string tpu = testing::fake_plugin("tpu");
  EXPECT_EQ(
      why(XlaMethod::worklist, {}, tpu),
      "[xla] a tile below the granule of v6e, 256x256, must come with a "
      "lowering reason, found none for 128x128, which pays 4 times its work");
  EXPECT_EQ(why(XlaMethod::chunked, {}, tpu),
            "[xla] a tile below the granule of v6e, 256x256, must come with a "
            "lowering reason, found none for 384x128, which pays 2.67 times "
            "its work");
  EXPECT_EQ(why(XlaMethod::worklist, kReason, tpu), "");
  EXPECT_EQ(why(XlaMethod::dense, {}, tpu), "");
  EXPECT_EQ(why(XlaMethod::dense, kReason, tpu),
            "[run] a lowering reason goes with tiles of scores on a TPU, found "
            "one for the xla lane on TPU v6 lite 0");
  EXPECT_EQ(why(XlaMethod::worklist, {}, "xla_cpu_pjrt"), "");
  EXPECT_EQ(why(XlaMethod::worklist, "", tpu),
            "[run] a lowering reason must be of 1 to 200 bytes, found 0");
  EXPECT_TRUE(why(XlaMethod::worklist, kReason, "xla_cpu_pjrt")
                  .starts_with("[run] a lowering reason goes with tiles of "
                               "scores on a TPU, found one for the xla lane"));

  for (const XlaMethod method : {XlaMethod::worklist, XlaMethod::chunked}) {
    SessionOptions o = options();
    o.lane = LaneId::xla;
    o.xla.method = method;
    RunCall run{*batch, call.shape, arrays.forward(true)};
    const auto ran = run_attention(run, o);
    ASSERT_TRUE(ran) << ran.error().message;
    const auto json = nlohmann::json::parse(ran->receipt);
    EXPECT_EQ(json["lowering"]["reason"], kReason);
    const bool listed = method == XlaMethod::worklist;
    EXPECT_EQ(json["lowering"]["tile"],
              (nlohmann::json{listed ? 128 : 384, 128}));
    // 384 by 128 are two granules by one.
    EXPECT_EQ(3 * json["lowering"]["paid_pairs"].get<int64_t>(),
              (listed ? 12 : 8) * json["pairs"]["run"].get<int64_t>());
    EXPECT_TRUE(check_receipt(ran->receipt))
        << check_receipt(ran->receipt).error().message;
    // Runs again with the reason in the receipt.
    SessionOptions again;
    again.xla.plugin = o.xla.plugin;
    const auto wrong = verify_run(ran->receipt, run, again);
    ASSERT_TRUE(wrong) << wrong.error().message;
    EXPECT_TRUE(wrong->empty()) << wrong->front();
  }
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
  EXPECT_EQ(why(plugin_of_kind("TPU v99")),
            "[mosaic] a device must be a TPU of v4, v5e, v5p, v6e, tpu7x, "
            "found 'TPU v99'");
}

// Kernels are made for the chip that the device's kind names, and for no other.
TEST_F(MosaicLane, RunsOnEveryChipThatIsKnown) {
  std::set<std::string> keys;
  for (const Chip& chip : chips()) {
    SCOPED_TRACE(chip.name);
    SessionOptions o = options();
    o.xla.plugin = plugin_of_kind(std::string(chip.kind));
    o.xla.lowering_reason.reset();
    AttentionArrays arrays(packed_case(testing::Layout::padded, 1));
    const auto batch = BorrowedBatch::make(arrays.request, arrays.facts);
    ASSERT_TRUE(batch.ok()) << batch.error().message;
    if (is_below_granule(batch->request().tile, chip.granule)) {
      o.xla.lowering_reason = kReason;
    }
    const AttentionCall call = {arrays.c.shape, Dtype::bf16, false, true};
    write_stablehlo(*batch, call, chip);
    auto session = Session::open(o);
    ASSERT_TRUE(session.ok()) << session.error().message;
    EXPECT_EQ(chip_of_device(session->place()->device)->name, chip.name);
    auto ready = session->prepare(*batch, call);
    ASSERT_TRUE(ready.ok()) << ready.error().message;
    const auto receipt = testing::judged_receipt(*ready, arrays);
    ASSERT_TRUE(receipt.ok()) << receipt.error().message;
    const auto json = nlohmann::json::parse(*receipt);
    EXPECT_EQ(json["lane"]["executed"], "mosaic");
    EXPECT_EQ(json["device"], std::string(chip.kind) + " 0");
    for (const char* direction : {"forward", "backward"}) {
      EXPECT_EQ(json["kernels"][direction], keys_[direction]) << direction;
      EXPECT_TRUE(keys.insert(keys_[direction]).second) << direction;
    }
  }
  EXPECT_EQ(keys.size(), 10u);
}

// The promise makes different kernels, is in the receipt, and is used for a
// second run.
TEST_F(MosaicLane, APromiseOfFiniteNumbersIsInTheReceipt) {
  AttentionArrays arrays(packed_case(testing::Layout::padded, 1));
  const auto batch = BorrowedBatch::make(arrays.request, arrays.facts);
  ASSERT_TRUE(batch.ok()) << batch.error().message;
  const AttentionCall call = {arrays.c.shape, Dtype::bf16, false, true};
  std::set<std::string> keys;
  for (const Numbers numbers : {Numbers::any, Numbers::finite}) {
    SCOPED_TRACE(std::string(to_string(numbers)));
    write_stablehlo(*batch, call, *find_chip("v6e"), numbers);
    SessionOptions o = options();
    o.xla.numbers = numbers;
    const auto ran = run_attention(
        {*batch, arrays.c.shape, arrays.forward(true), arrays.gradients()}, o);
    ASSERT_TRUE(ran.ok()) << ran.error().message;
    const auto json = nlohmann::json::parse(ran->receipt);
    EXPECT_EQ(json["numbers"], to_string(numbers));
    for (const char* direction : {"forward", "backward"}) {
      EXPECT_EQ(json["kernels"][direction], keys_[direction]) << direction;
      EXPECT_TRUE(keys.insert(keys_[direction]).second) << direction;
    }
    o.xla.numbers = Numbers::any;  // the receipt's value counts
    const RunCall again = {*batch, arrays.c.shape, arrays.forward(true),
                           arrays.gradients()};
    const auto wrong = verify_run(ran->receipt, again, o);
    ASSERT_TRUE(wrong.ok()) << wrong.error().message;
    EXPECT_TRUE(wrong->empty()) << wrong->front();
  }
}

// Only the forward kernel has a rounded row sum, and float32 has none.
TEST_F(MosaicLane, ARoundedRowSumIsInTheReceipt) {
  AttentionArrays arrays(packed_case(testing::Layout::padded, 1));
  const auto batch = BorrowedBatch::make(arrays.request, arrays.facts);
  ASSERT_TRUE(batch.ok()) << batch.error().message;
  const AttentionCall call = {arrays.c.shape, Dtype::bf16, false, true};
  std::set<std::string> forward, backward;
  for (const RowSum row_sum : {RowSum::exact, RowSum::rounded}) {
    SCOPED_TRACE(std::string(to_string(row_sum)));
    write_stablehlo(*batch, call, *find_chip("v6e"), Numbers::any, row_sum);
    SessionOptions o = options();
    o.xla.row_sum = row_sum;
    const auto ran = run_attention(
        {*batch, arrays.c.shape, arrays.forward(true), arrays.gradients()}, o);
    ASSERT_TRUE(ran.ok()) << ran.error().message;
    const auto json = nlohmann::json::parse(ran->receipt);
    EXPECT_EQ(json["row_sum"], to_string(row_sum));
    EXPECT_EQ(json["kernels"]["forward"], keys_["forward"]);
    EXPECT_EQ(json["kernels"]["backward"], keys_["backward"]);
    forward.insert(keys_["forward"]);
    backward.insert(keys_["backward"]);
    o.xla.row_sum = RowSum::exact;  // the receipt's value counts
    const RunCall again = {*batch, arrays.c.shape, arrays.forward(true),
                           arrays.gradients()};
    const auto wrong = verify_run(ran->receipt, again, o);
    ASSERT_TRUE(wrong.ok()) << wrong.error().message;
    EXPECT_TRUE(wrong->empty()) << wrong->front();
  }
  EXPECT_EQ(forward.size(), 2u);
  EXPECT_EQ(backward.size(), 1u);
  SessionOptions o = options();
  o.xla.row_sum = RowSum::rounded;
  auto session = Session::open(o);
  ASSERT_TRUE(session.ok()) << session.error().message;
  const auto wide =
      session->prepare(*batch, {arrays.c.shape, Dtype::f32, false, false});
  ASSERT_FALSE(wide);
  EXPECT_EQ(wide.error().message,
            "[mosaic] a rounded row sum goes with bf16, found F32");
}

// Where the rules choose, this machine's TPU is enough, and a threshold from
// the figures of another generation is named as such.
TEST_F(MosaicLane, IsChosenOnEveryChipThatIsKnown) {
  for (const Chip& chip : chips()) {
    SCOPED_TRACE(chip.name);
    SessionOptions o = options();
    const std::string plugin = plugin_of_kind(std::string(chip.kind));
    const run::PluginProbe found = run::probe_plugin(plugin);
    EXPECT_EQ(found.generation, chip.name) << found.why;
    o.lane.reset();
    o.machine =
        Machine{"A CPU", 8,    {},
                true,    true, {{plugin, found.platform, 1, found.generation}}};
    AttentionCase c = packed_case(testing::Layout::bhsd, 1);
    c.plan.batch = 1;
    c.plan.q_len = c.plan.kv_len = 700;
    c.plan.doc_ids->assign(700, 0);
    std::fill(c.plan.doc_ids->begin() + 300, c.plan.doc_ids->end(), 1);
    c.plan.tile = {256, 256};
    AttentionArrays arrays(c);
    const auto batch = BorrowedBatch::make(arrays.request, arrays.facts);
    ASSERT_TRUE(batch.ok()) << batch.error().message;
    const AttentionCall call = {arrays.c.shape, Dtype::bf16, false, false};
    write_stablehlo(*batch, call, chip);
    o.xla.lowering_reason.reset();
    auto session = Session::open(o);
    ASSERT_TRUE(session.ok()) << session.error().message;
    auto ready = session->prepare(*batch, call);
    ASSERT_TRUE(ready.ok()) << ready.error().message;
    EXPECT_EQ(ready->lane(), LaneId::mosaic);
    const testing::Wanted want = testing::wanted(arrays, false);
    arrays.clear_outputs();
    const auto saved = ready->forward(arrays.forward(true));
    ASSERT_TRUE(saved.ok()) << saved.error().message;
    EXPECT_EQ(testing::forward_fault(want, arrays.forward(true)), std::nullopt);
    const auto receipt = ready->receipt(*saved);
    ASSERT_TRUE(receipt.ok()) << receipt.error().message;
    const auto choice = nlohmann::json::parse(*receipt)["choice"];
    EXPECT_EQ(choice["rule"], "tpu kernels");
    const std::string reason = choice["reason"];
    const std::string note = fmt::format(
        "; the threshold is borrowed from v6e, applied to {}", chip.name);
    EXPECT_EQ(reason.ends_with(note), chip.name != "v6e") << reason;
    EXPECT_EQ(reason.find("threshold") == reason.npos, chip.name == "v6e");
  }
}

}  // namespace
}  // namespace tessera::mosaic
