// lanes/jax_bridge/lane_test.cc: an artifact of JAX on real plugins, compared
// with JAX's own results and with fp64.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/bytes.h"
#include "base/crc32.h"
#include "base/files.h"
#include "base/safetensors.h"
#include "lanes/jax_bridge/attention.h"
#include "lanes/reference/judge.h"
#include "tests/cpu_plugin.h"

namespace tessera::bridge {
namespace {

using tessera::testing::is_absent;
using tessera::testing::real_plugin;

std::string golden(const std::string& name) {
  auto bytes = read_file("tests/golden/bridge/small." + name, 1 << 20);
  EXPECT_TRUE(bytes.ok()) << bytes.error().message;
  return bytes ? *bytes : std::string();
}

class JaxBridge : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const auto plugin = real_plugin(GetParam());
    if (is_absent(plugin)) GTEST_SKIP() << plugin.error().message;
    ASSERT_TRUE(plugin.ok()) << plugin.error().message;
    artifact_ = golden("mlirbc");
    auto spec = parse_bridge_spec(golden("json"));
    ASSERT_TRUE(spec.ok()) << spec.error().message;
    spec_ = std::move(*spec);
    in_bytes_ = golden("in.safetensors");
    auto file = parse_safetensors(in_bytes_);
    ASSERT_TRUE(file.ok()) << file.error().message;
    for (const BridgeArray& a : spec_.inputs) {
      inputs_.push_back(file->find(a.name)->bytes.data());
    }
    // The program does not take this input.
    inputs_[3] = nullptr;
    outputs_ = {out_.data(), lse_.data()};
  }

  BridgeLane open(const std::string& folder = "") const {
    BridgeOptions options;
    options.plugin = GetParam();
    options.cache_folder = folder;
    auto lane = BridgeLane::open(options);
    EXPECT_TRUE(lane.ok()) << lane.error().message;
    return std::move(*lane);
  }
  std::string refusal(const BridgeLane& lane) const {
    const auto ran = lane.run(artifact_, spec_, inputs_, outputs_);
    return ran ? "it ran" : ran.error().message;
  }
  // Updates the spec's size and checksum after the artifact was changed.
  void seal() {
    spec_.artifact_bytes = static_cast<int64_t>(artifact_.size());
    spec_.artifact_crc32 = crc32(artifact_);
  }

  std::string artifact_, in_bytes_;
  BridgeSpec spec_;
  std::vector<const void*> inputs_;
  std::vector<float> out_ = std::vector<float>(2 * 16 * 8, NAN);
  std::vector<float> lse_ = std::vector<float>(2 * 16, NAN);
  std::vector<void*> outputs_;
};

TESSERA_FOR_CPU_PLUGINS(JaxBridge);

TEST_P(JaxBridge, MakesWhatJaxMade) {
  const BridgeLane lane = open();
  EXPECT_EQ(lane.place().platform, "cpu");
  EXPECT_EQ(lane.place().device, "cpu 0");
  const auto ran = lane.run(artifact_, spec_, inputs_, outputs_);
  ASSERT_TRUE(ran.ok()) << ran.error().message;
  EXPECT_EQ(ran->compiles, 1);

  // JAX's compiler adds in another order, but both are within the fp32 bounds.
  const std::string made = golden("out.safetensors");
  const auto file = parse_safetensors(made);
  ASSERT_TRUE(file.ok());
  auto their_out = load_array<float>(file->find("out")->bytes);
  auto their_lse = load_array<float>(file->find("lse")->bytes);
  ASSERT_EQ(their_out.size(), out_.size());
  ASSERT_EQ(their_lse.size(), lse_.size());
  const std::vector<void*> theirs = {their_out.data(), their_lse.data()};
  for (const std::vector<void*>& outputs : {outputs_, theirs}) {
    const auto call = bridge::declared_attention(spec_, inputs_, outputs);
    ASSERT_TRUE(call.ok()) << call.error().message;
    const auto verdict = reference::judge_declared_forward(
        call->request, call->facts, call->shape, call->tensors);
    ASSERT_TRUE(verdict.ok()) << verdict.error().message;
    EXPECT_EQ(verdict->rows, 32);
    EXPECT_TRUE(verdict->passed()) << verdict->worst;
  }

  // The judge does find errors: with another mask the same output fails.
  BridgeSpec other = spec_;
  other.attention->mask = "causal & documents";
  const auto wrong = bridge::declared_attention(other, inputs_, outputs_);
  ASSERT_TRUE(wrong.ok());
  EXPECT_FALSE(reference::judge_declared_forward(wrong->request, wrong->facts,
                                                 wrong->shape, wrong->tensors)
                   ->passed());
}

TEST_P(JaxBridge, TheKeyIsTheArtifactsAndItsShapes) {
  const std::string folder =
      ::testing::TempDir() + "tessera_bridge_" + std::to_string(getpid());
  std::filesystem::remove_all(folder);
  const BridgeLane lane = open(folder);
  const auto first = lane.run(artifact_, spec_, inputs_, outputs_);
  ASSERT_TRUE(first.ok()) << first.error().message;
  EXPECT_EQ(first->compiles, 1);
  const auto again = lane.run(artifact_, spec_, inputs_, outputs_);
  ASSERT_TRUE(again.ok()) << again.error().message;
  EXPECT_EQ(again->compiles, 0);
  EXPECT_EQ(again->memory_hits, 1);
  EXPECT_EQ(again->contract.key, first->contract.key);
  EXPECT_NE(first->contract.text.find(first->artifact_digest),
            std::string::npos);

  const std::vector<float> out = out_;
  std::fill(out_.begin(), out_.end(), NAN);
  const auto kept = open(folder).run(artifact_, spec_, inputs_, outputs_);
  ASSERT_TRUE(kept.ok()) << kept.error().message;
  EXPECT_EQ(kept->compiles, 0);
  EXPECT_EQ(kept->disk_hits, 1);
  EXPECT_EQ(out_, out);

  // The key does not depend on names, but on every byte of the artifact.
  spec_.inputs[0].name = "queries";
  spec_.attention.reset();
  EXPECT_EQ(lane.run(artifact_, spec_, inputs_, outputs_)->contract.key,
            first->contract.key);
  artifact_ += '\0';
  seal();
  const auto longer = lane.run(artifact_, spec_, inputs_, outputs_);
  if (longer) {
    EXPECT_NE(longer->contract.key, first->contract.key);
    EXPECT_EQ(longer->compiles, 1);
  }
  std::filesystem::remove_all(folder);
}

TEST_P(JaxBridge, AnotherArtifactThanThatOfTheShapesIsRefused) {
  const BridgeLane lane = open();
  const std::string whole = artifact_;
  artifact_.pop_back();
  EXPECT_EQ(refusal(lane), "[bridge] the artifact must have the " +
                               std::to_string(whole.size()) +
                               " bytes that its shapes say, found " +
                               std::to_string(whole.size() - 1));
  artifact_ = whole;
  artifact_[100] = static_cast<char>(artifact_[100] ^ 4);
  EXPECT_TRUE(
      refusal(lane).starts_with("[bridge] the artifact must have the crc32 "))
      << refusal(lane);
  artifact_ = "module {}";
  seal();
  EXPECT_EQ(refusal(lane),
            "[bridge] the artifact must be StableHLO as MLIR bytecode, found "
            "bytes that begin with 'modu'");
  // Sealed again, so that the artifact reaches the plugin.
  artifact_ = whole.substr(0, whole.size() / 2);
  seal();
  EXPECT_TRUE(
      refusal(lane).starts_with("[pjrt] the program must compile, found "))
      << refusal(lane);
}

TEST_P(JaxBridge, ShapesThatAreNotTheProgramsAreRefused) {
  const BridgeLane lane = open();
  const BridgeSpec right = spec_;
  spec_.inputs[0].shape = {1, 2, 8, 16};
  EXPECT_EQ(refusal(lane),
            "[bridge] the program's input must be F32 [1, 2, 8, 16] as its "
            "shapes say, found F32 [1, 2, 16, 8] for 'q'");
  spec_ = right;
  spec_.outputs[1].dtype = Dtype::i32;
  EXPECT_EQ(refusal(lane),
            "[bridge] the program's output must be I32 [1, 2, 16] as its "
            "shapes say, found F32 [1, 2, 16] for 'lse'");
  spec_ = right;
  spec_.kept_inputs = {0, 1, 2, 3, 4};
  EXPECT_EQ(refusal(lane),
            "[bridge] the program must take the 6 arguments of its shapes "
            "(kept inputs, and the platform's index where it has one), found "
            "5");
  spec_ = right;
  spec_.platform_index = false;
  EXPECT_EQ(refusal(lane),
            "[bridge] the program must take the 4 arguments of its shapes "
            "(kept inputs, and the platform's index where it has one), found "
            "5");
  spec_ = right;
  spec_.platforms = {"tpu", "cuda"};
  EXPECT_EQ(refusal(lane),
            "[bridge] the artifact must be exported for the plugin's platform "
            "'cpu', found 'tpu, cuda'");
  spec_ = right;
  outputs_.pop_back();
  EXPECT_EQ(refusal(lane),
            "[bridge] there must be 5 inputs and 2 outputs, found 5 and 1");
  outputs_.push_back(lse_.data());
  inputs_[0] = nullptr;
  EXPECT_EQ(refusal(lane),
            "[pjrt] an array must have data, found none for F32 [1, 2, 16, 8] "
            "on cpu 0");
}

// A run with held inputs gives the same output, even if their arrays change.
TEST_P(JaxBridge, InputsThatAreHeldAreSentOnce) {
  const BridgeLane lane = open();
  const auto program = lane.prepare(artifact_, spec_);
  ASSERT_TRUE(program.ok()) << program.error().message;
  ASSERT_TRUE(program->run(inputs_, outputs_).ok());
  const std::vector<float> out = out_;
  auto file = parse_safetensors(in_bytes_);
  ASSERT_TRUE(file.ok());
  auto ids = load_array<int32_t>(file->find("ids")->bytes);
  std::vector<const void*> inputs(spec_.inputs.size());
  inputs[4] = ids.data();
  const auto held = program->hold(inputs);
  ASSERT_TRUE(held.ok()) << held.error().message;
  ids.assign(ids.size(), -1);
  inputs = inputs_;
  inputs[4] = nullptr;
  for (int layer = 0; layer < 2; ++layer) {
    std::fill(out_.begin(), out_.end(), NAN);
    const auto ran = program->run(inputs, outputs_, *held);
    ASSERT_TRUE(ran.ok()) << ran.error().message;
    EXPECT_EQ(out_, out);
  }
  EXPECT_EQ(program->run(inputs, outputs_).error().message,
            "[pjrt] an array must have data, found none for I32 [1, 16] on cpu "
            "0");
  const auto other = lane.prepare(artifact_, spec_);
  ASSERT_TRUE(other.ok()) << other.error().message;
  EXPECT_EQ(other->run(inputs, outputs_, *held).error().message,
            "[bridge] held inputs must be this program's, found another's");
  inputs.pop_back();
  EXPECT_EQ(program->hold(inputs).error().message,
            "[bridge] there must be 5 inputs, found 4");
}

TEST(JaxBridgeOf, APluginThatIsAbsentSaysSo) {
  BridgeOptions options;
  options.plugin = "/no/such.so";
  EXPECT_FALSE(BridgeLane::open(options).ok());
}

}  // namespace
}  // namespace tessera::bridge
