// run/operation_test.cc: tests one call that runs and judges a JAX operation,
// and its receipt.
#include "run/operation.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "base/digest.h"
#include "base/files.h"
#include "base/safetensors.h"
#include "run/operation_receipt.h"
#include "run/verify.h"
#include "tests/cpu_plugin.h"

namespace tessera::run {
namespace {

const std::string kSmall = "tests/golden/bridge/small.";
const std::string kDigits(32, 'a');

class Operation : public ::testing::Test {
 protected:
  void SetUp() override {
    auto artifact = load_artifact(kSmall + "mlirbc", kSmall + "json");
    ASSERT_TRUE(artifact.ok()) << artifact.error().message;
    artifact_ = std::move(*artifact);
    auto bytes = read_file(kSmall + "in.safetensors", 1 << 20);
    ASSERT_TRUE(bytes.ok()) << bytes.error().message;
    bytes_ = std::move(*bytes);
    auto file = parse_safetensors(bytes_);
    ASSERT_TRUE(file.ok()) << file.error().message;
    file_ = std::move(*file);
    inputs_.reserve(artifact_.spec.inputs.size());
    for (const BridgeArray& a : artifact_.spec.inputs) {
      inputs_.push_back(file_.find(a.name)->bytes.data());
    }
    outputs_ = {out_.data(), lse_.data()};
  }

  OperationArrays arrays() const { return {inputs_, outputs_}; }
  // The error of a call that must be refused before any plugin is loaded.
  std::string refusal() const {
    OperationOptions options;
    options.bridge.plugin = "/no/such.so";
    options.check = true;
    const auto ran = run_operation(artifact_, arrays(), options);
    return ran ? "it ran" : ran.error().message;
  }

  BridgeArtifact artifact_;
  std::string bytes_;
  Safetensors file_;  // views of the bytes
  std::vector<const void*> inputs_;
  std::vector<float> out_ = std::vector<float>(2 * 16 * 8, 0.5F);
  std::vector<float> lse_ = std::vector<float>(2 * 16, 2);
  std::vector<void*> outputs_;
};

TEST_F(Operation, ItsReceiptHasTheDigestsOfItsArrays) {
  OperationRun run;
  run.ran.artifact_digest = kDigits;
  run.ran.contract = {kDigits, "{\"artifact\":\"" + kDigits + "\"}"};
  run.ran.compiles = 1;
  run.plugin = {"a.so", "0.81", "cpu", "v", "cpu 0", 0};
  for (const bool drawn : {true, false}) {
    const receipt::Receipt r = operation_receipt(
        artifact_.spec, arrays(), run, {"a.mlirbc", "a.json", "", drawn, 7});
    const auto ok = check_receipt(receipt::receipt_json(r));
    EXPECT_TRUE(ok.ok()) << ok.error().message;
    EXPECT_EQ(r.operation, "attention");
    EXPECT_EQ(r.inputs.seed, 7);
    EXPECT_EQ(r.inputs.drawn.size(), drawn ? 5U : 0U);
    EXPECT_EQ(r.inputs.digests.size(), 5);
    for (const auto& [name, digest] : r.inputs.digests) {
      EXPECT_EQ(digest, digest_of(file_.find(name)->bytes)) << name;
    }
    std::string made(reinterpret_cast<const char*>(out_.data()),
                     out_.size() * sizeof(float));
    made.append(reinterpret_cast<const char*>(lse_.data()),
                lse_.size() * sizeof(float));
    EXPECT_EQ(r.output_digest, digest_of(made));
  }
}

TEST_F(Operation, WhatCannotBeJudgedIsRefusedBeforeItRuns) {
  BridgeSpec& spec = artifact_.spec;
  const BridgeSpec good = spec;
  spec.attention.reset();
  spec.operation = "rms_norm";
  EXPECT_EQ(refusal(),
            "[bridge] an operation that is checked must be declared as "
            "attention, found 'rms_norm'");
  spec = good;
  spec.attention->mask = "causal & segments & documents";
  spec.attention->roles["q_doc_ids"] = "ids";
  EXPECT_TRUE(refusal().starts_with("[facts] ")) << refusal();
  spec = good;
  inputs_.pop_back();
  EXPECT_EQ(refusal(),
            "[bridge] there must be 5 inputs and 2 outputs, found 4 and 2");
}

class OperationRuns : public Operation,
                      public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    const auto plugin = tessera::testing::real_plugin(GetParam());
    if (tessera::testing::is_absent(plugin)) {
      GTEST_SKIP() << plugin.error().message;
    }
    Operation::SetUp();
  }

  Result<OperationRun> run() const {
    OperationOptions options;
    options.bridge.plugin = GetParam();
    options.check = true;
    return run_operation(artifact_, arrays(), options);
  }
  receipt::Receipt receipt_of(const OperationRun& ran) const {
    return operation_receipt(
        artifact_.spec, arrays(), ran,
        {kSmall + "mlirbc", kSmall + "json", kSmall + "in.safetensors"});
  }
};
TESSERA_FOR_CPU_PLUGINS(OperationRuns);

TEST_P(OperationRuns, IsJudgedAndItsReceiptIsTrue) {
  const auto ran = run();
  ASSERT_TRUE(ran.ok()) << ran.error().message;
  EXPECT_EQ(ran->ran.compiles, 1);
  EXPECT_EQ(ran->check.kind, "full");
  EXPECT_EQ(ran->check.rows, 32);
  EXPECT_TRUE(ran->check.passed) << ran->check.worst;
  const auto claim =
      receipt::parse_receipt(receipt::receipt_json(receipt_of(*ran)));
  ASSERT_TRUE(claim.ok()) << claim.error().message;
  const auto verdict =
      verify_receipt(*claim, [&](const receipt::Receipt&) -> Result<SecondRun> {
        const auto again = run();
        if (!again) return again.error();
        return SecondRun{receipt_of(*again), {}};
      });
  ASSERT_TRUE(verdict.ok()) << verdict.error().message;
  EXPECT_TRUE(verdict->is_true());
}

TEST_P(OperationRuns, ADeclarationThatIsNotTrueFailsTheCheck) {
  artifact_.spec.attention->mask = "causal & documents";
  const auto ran = run();
  ASSERT_TRUE(ran.ok()) << ran.error().message;
  EXPECT_FALSE(ran->check.passed);
}

}  // namespace
}  // namespace tessera::run
