// cli/bridge/command_test.cc: `tessera bridge` as a user runs it.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/bytes.h"
#include "base/files.h"
#include "base/safetensors.h"
#include "base/shape.h"
#include "tessera/bridge.h"
#include "tests/cpu_plugin.h"
#include "tests/program.h"

namespace tessera::cli {
namespace {

using nlohmann::json;
using tessera::testing::Arguments;

constexpr const char* kArtifact = "tests/golden/bridge/small.mlirbc";
constexpr const char* kShapes = "tests/golden/bridge/small.json";
constexpr const char* kInputs = "tests/golden/bridge/small.in.safetensors";

class Bridge : public tessera::testing::Program {
 protected:
  std::string text_of(const std::string& path) const {
    auto text = read_file(path, 1 << 24);
    return text ? *text : std::string();
  }
  std::string write(const char* name, const std::string& text) const {
    EXPECT_TRUE(write_file(file(name), text).ok());
    return file(name);
  }

  int bridge(const Arguments& more) { return program({"bridge"}, more); }
  // The error of a call that must be refused before any plugin is loaded.
  std::string refusal(const Arguments& more) {
    Arguments all = {"--plugin", "/no/such.so"};
    all.insert(all.end(), more.begin(), more.end());
    EXPECT_EQ(bridge(all), 2) << out_;
    EXPECT_EQ(out_, "");
    return err_;
  }
  std::string inputs_with(const std::string& name, const Tensor& tensor) const {
    const std::string bytes = text_of(kInputs);
    auto tensors = parse_safetensors(bytes);
    EXPECT_TRUE(tensors.ok());
    tensors->tensors[name] = tensor;
    return write("inputs", *write_safetensors(*tensors));
  }
};

class BridgeRuns : public Bridge,
                   public ::testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    const auto plugin = tessera::testing::real_plugin(GetParam());
    if (tessera::testing::is_absent(plugin)) {
      GTEST_SKIP() << plugin.error().message;
    }
  }
  int run(const Arguments& more) {
    Arguments all = {kArtifact,  "--shapes", kShapes,      "--plugin",
                     GetParam(), "--cache",  file("cache")};
    all.insert(all.end(), more.begin(), more.end());
    return bridge(all);
  }
};
TESSERA_FOR_CPU_PLUGINS(BridgeRuns);

TEST_P(BridgeRuns, SaysWhatRanAndWritesIt) {
  ASSERT_EQ(run({"--inputs", kInputs, "--outputs", file("out"), "--receipt",
                 file("receipt"), "--check", "--device", "1"}),
            0)
      << err_;
  EXPECT_EQ(err_, "");
  EXPECT_TRUE(out_.starts_with("ran         jax_bridge lane, family tpu/jax\n"))
      << out_;
  EXPECT_NE(out_.find("\noperation   attention small\nartifact    '" +
                      std::string(kArtifact) + "', exported by JAX "),
            std::string::npos)
      << out_;
  EXPECT_NE(out_.find("check       passed: all 32 rows"), std::string::npos)
      << out_;
  EXPECT_NE(out_.find("wider than a kernel contract"), std::string::npos);

  const std::string bytes = text_of(file("out"));
  const auto outputs = parse_safetensors(bytes);
  ASSERT_TRUE(outputs.ok()) << outputs.error().message;
  EXPECT_EQ(outputs->find("out")->shape, std::vector<int64_t>({1, 2, 16, 8}));
  EXPECT_EQ(outputs->find("lse")->shape, std::vector<int64_t>({1, 2, 16}));

  const json receipt = json::parse(text_of(file("receipt")));
  EXPECT_EQ(receipt["lane"]["executed"], "jax_bridge");
  EXPECT_EQ(receipt["lane"]["family"], "tpu/jax");
  EXPECT_EQ(receipt["plugin"]["device"], "cpu 1");
  EXPECT_EQ(receipt["operation"], "attention");
  EXPECT_EQ(receipt["compiles"], 1);
  EXPECT_EQ(receipt["key"]["wider"], true);
  EXPECT_EQ(receipt["key"]["terms"]["artifact"], receipt["artifact"]["digest"]);
  EXPECT_EQ(receipt["check"]["passed"], true);
  EXPECT_EQ(receipt["inputs"]["drawn"], json::array());
  EXPECT_EQ(receipt["inputs"]["digests"].size(), 5u);
}

TEST_P(BridgeRuns, DrawnInputsAreTheSeeds) {
  std::string digests[3];
  const char* const seeds[] = {"7", "7", "8"};
  for (size_t i = 0; i < 3; ++i) {
    ASSERT_EQ(run({"--seed", seeds[i], "--json", "--check"}), 0) << err_;
    const json receipt = json::parse(out_);
    digests[i] = receipt["output"]["digest"];
    EXPECT_EQ(receipt["inputs"]["drawn"].size(), 5u);
    EXPECT_EQ(receipt["compiles"], i == 0 ? 1 : 0);
    EXPECT_EQ(receipt["cache_hits"]["disk"], i == 0 ? 0 : 1);
  }
  EXPECT_EQ(digests[0], digests[1]);
  EXPECT_NE(digests[0], digests[2]);
}

TEST_P(BridgeRuns, ADeclarationThatIsNotTrueFailsTheCheck) {
  json shapes = json::parse(text_of(kShapes));
  shapes["attention"]["mask"] = "causal & documents";
  const std::string path = write("shapes", shapes.dump());
  EXPECT_EQ(bridge({kArtifact, "--shapes", path, "--inputs", kInputs,
                    "--plugin", GetParam(), "--cache", "off", "--check"}),
            1);
  EXPECT_NE(out_.find("check       FAILED: "), std::string::npos) << out_;
}

TEST_P(BridgeRuns, ADeviceThatIsNotThereIsRefused) {
  EXPECT_EQ(run({"--inputs", kInputs, "--device", "999"}), 2);
  EXPECT_TRUE(err_.starts_with(
      "tessera: [pjrt] a device's number must be less than the "))
      << err_;
}

TEST_F(Bridge, FilesThatAreNotThereOrServeTwiceAreRefused) {
  EXPECT_TRUE(
      refusal({kArtifact, "--shapes", file("none")}).starts_with("tessera: ["));
  EXPECT_TRUE(
      refusal({file("none"), "--shapes", kShapes}).starts_with("tessera: ["));
  EXPECT_TRUE(
      refusal({kArtifact, "--shapes", kShapes, "--inputs", file("none")})
          .starts_with("tessera: ["));
  EXPECT_EQ(refusal({kArtifact, "--shapes", kShapes, "--outputs", kShapes}),
            "tessera: [cli] each file must have a name of its own, found '" +
                std::string(kShapes) + "' twice\n");
  EXPECT_TRUE(
      refusal({kArtifact, "--shapes", kShapes, "--receipt", file("no/folder")})
          .starts_with("tessera: ["));
  EXPECT_NE(refusal({kArtifact}).find("--shapes"), std::string::npos);
  EXPECT_EQ(bridge({}), 2);
}

TEST_F(Bridge, FlagsAreRefused) {
  const Arguments base = {kArtifact, "--shapes", kShapes};
  const auto with = [&](const Arguments& more) {
    Arguments all = base;
    all.insert(all.end(), more.begin(), more.end());
    return refusal(all);
  };
  EXPECT_TRUE(with({"--device", "-1"}).starts_with("tessera: [cli] --device "));
  EXPECT_TRUE(with({"--seed", "x"}).starts_with("tessera: [cli] --seed "));
  EXPECT_EQ(with({"--seed", "1", "--inputs", kInputs}),
            "tessera: [cli] --seed goes without --inputs, found both\n");
  json shapes = json::parse(text_of(kShapes));
  shapes.erase("attention");
  shapes["operation"] = "rms_norm";
  EXPECT_EQ(refusal({kArtifact, "--shapes", write("other", shapes.dump()),
                     "--check"}),
            "tessera: [cli] --check needs an operation that the file of shapes "
            "declares as attention, found 'rms_norm'\n");
  // Only the plugin is wrong.
  if (auto ok = pjrt::check_available(); !ok)
    GTEST_SKIP() << ok.error().message;
  EXPECT_NE(with({"--inputs", kInputs}).find("/no/such.so"), std::string::npos)
      << err_;
}

TEST_F(Bridge, ShapesFromStrangersAreRefused) {
  std::string nan = text_of(kShapes);
  nan.replace(nan.find("2.0"), 3, "NaN");
  EXPECT_TRUE(refusal({kArtifact, "--shapes", write("nan", nan)})
                  .starts_with("tessera: [bridge] text must be valid JSON, "
                               "found 'N' for line "));
  json shapes = json::parse(text_of(kShapes));
  shapes["inputs"][4].erase("range");
  EXPECT_EQ(refusal({kArtifact, "--shapes", write("range", shapes.dump())}),
            "tessera: [bridge] an integer input must come from --inputs or "
            "have a range in the file of shapes, found neither for 'ids'\n");
  shapes.erase("attention");
  shapes["operation"] = "huge";
  shapes["outputs"][0]["shape"] = {int64_t{1} << 45};
  EXPECT_TRUE(refusal({kArtifact, "--shapes", write("huge", shapes.dump()),
                       "--inputs", kInputs})
                  .starts_with("tessera: [bridge] the arrays must fit the "
                               "memory that is free, found 281 T bytes for "
                               "them\n"))
      << err_;
}

TEST_F(Bridge, InputsThatDoNotFitAreRefused) {
  const auto with = [&](const std::string& path) {
    // The error names the file after the rule.
    const std::string in = " (in '" + path + "')\n";
    std::string said =
        refusal({kArtifact, "--shapes", kShapes, "--inputs", path});
    EXPECT_TRUE(said.ends_with(in)) << said;
    return said.substr(0, said.size() - in.size());
  };
  const std::string zeros(1 << 12, '\0');
  const auto bytes = [&](size_t size) {
    return std::string_view(zeros).substr(0, size);
  };
  EXPECT_EQ(with(inputs_with("q", {Dtype::f32, {1, 2, 8, 16}, bytes(1024)})),
            "tessera: [inputs] 'q' must be F32 [1, 2, 16, 8], found F32 [1, 2, "
            "8, 16]");
  EXPECT_EQ(with(inputs_with("q", {Dtype::bf16, {1, 2, 16, 8}, bytes(512)})),
            "tessera: [inputs] 'q' must be F32 [1, 2, 16, 8], found BF16 [1, "
            "2, 16, 8]");
  EXPECT_EQ(with(inputs_with("p", {Dtype::f32, {1}, bytes(4)})),
            "tessera: [inputs] tensors must be named 'q, k, v, unused, ids', "
            "found 'p'");
  EXPECT_EQ(with(inputs_with("unused", {Dtype::boolean, {3}, "\1\2\1"})),
            "tessera: [inputs] a BOOL must be 0 or 1, found 2 for 'unused'");

  const std::string whole = text_of(kInputs);
  auto tensors = parse_safetensors(whole);
  ASSERT_TRUE(tensors.ok());
  tensors->tensors.erase("v");
  EXPECT_TRUE(with(write("absent", *write_safetensors(*tensors)))
                  .starts_with("tessera: [safetensors] "))
      << err_;
  EXPECT_TRUE(with(write("cut", whole.substr(0, whole.size() - 8)))
                  .starts_with("tessera: [safetensors] "))
      << err_;
}

// Invalid document ids are found before the program runs.
TEST_F(Bridge, FactsThatDoNotFitAreRefusedBeforeTheRun) {
  json shapes = json::parse(text_of(kShapes));
  shapes["attention"]["mask"] = "causal & segments & documents";
  shapes["attention"]["roles"]["q_doc_ids"] = "ids";
  EXPECT_TRUE(refusal({kArtifact, "--shapes", write("facts", shapes.dump()),
                       "--inputs", kInputs, "--check"})
                  .starts_with("tessera: [facts] "))
      << err_;
}

// The artifacts take a tree, and ids of queries besides ids of keys.
TEST_F(Bridge, TreesAndIdsOfQueriesAreCheckedBeforeTheRun) {
  const std::string path = "tests/golden/bridge/roles";
  const auto spec = parse_bridge_spec(text_of(path + ".json"));
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  std::map<std::string, std::vector<int32_t>> arrays;  // all are 4 bytes wide
  for (const BridgeArray& a : spec->inputs) {
    arrays[a.name].resize(static_cast<size_t>(elements_of(a.shape)));
  }
  for (size_t i = 0; i < arrays["tree_enter"].size(); ++i) {
    arrays["tree_enter"][i] = static_cast<int32_t>(i % 16);
    arrays["tree_leave"][i] = static_cast<int32_t>(i % 16 + 1);
  }
  const auto refused = [&] {
    Safetensors file;
    for (const BridgeArray& a : spec->inputs) {
      const auto& values = arrays[a.name];
      file.tensors[a.name] = {
          a.dtype,
          a.shape,
          {reinterpret_cast<const char*>(values.data()), 4 * values.size()}};
    }
    return refusal({path + ".mlirbc", "--shapes", path + ".json", "--inputs",
                    write("roles", *write_safetensors(file)), "--check"});
  };
  arrays["q_same_b"][17] = 1;
  EXPECT_EQ(refused(),
            "tessera: [bridge] q_same_b must be the ids of same_b at the "
            "queries' positions, found 1 for query 5 of batch row 1, where 0 "
            "stands\n");
  arrays["tree_enter"][3] = 2;
  EXPECT_TRUE(refused().starts_with(
      "tessera: [facts] tree_enter must rise from token to token, found 2 "))
      << err_;
}

}  // namespace
}  // namespace tessera::cli
