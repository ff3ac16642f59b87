// lanes/xla/compile_test.cc: libtpu compiles the programs of every direction
// and method, without a TPU. Skipped without libtpu.
#include "pjrt/compile.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>

#include "lanes/xla/planned.h"
#include "pjrt/topology.h"
#include "tests/plugins.h"

namespace tessera::xla {
namespace {

Result<Planned> planned(const Batch& batch, XlaMethod method,
                        const std::string& direction) {
  AttentionCall call;
  call.shape = {4, 2, 128, 128, {}, 0};
  call.dtype = Dtype::bf16;
  call.sink_logits = true;
  auto contract = make_contract(batch);
  if (!contract) return contract.error();
  if (direction == "sinks") {
    call.sink_telemetry = true;
    return plan_sinks(batch.request(), batch.facts(), std::move(*contract),
                      call, method, {"v6e:1x1"});
  }
  call.backward = call.dlse = direction == "backward";
  return plan_call(batch.request(), batch.facts(), std::move(*contract), call,
                   call.backward, method, {"v6e:1x1"});
}

std::string program_of(const Shape& s) {
  if (s.sinks) return sinks_program(s);
  return s.backward ? backward_program(s) : forward_program(s);
}

class XlaCompile : public ::testing::Test {
 protected:
  void SetUp() override {
    TESSERA_NEEDS_PLUGINS();
    const auto plugin = testing::real_plugin("libtpu");
    if (testing::is_absent(plugin)) GTEST_SKIP() << plugin.error().message;
    ASSERT_TRUE(plugin.ok()) << plugin.error().message;
    auto topology = pjrt::make_topology(**plugin, "v6e:1x1");
    ASSERT_TRUE(topology.ok()) << topology.error().message;
    topology_.emplace(std::move(*topology));
  }

  // Expects that libtpu compiles the program that the lane would run.
  void expect_compiles(const Batch& batch, XlaMethod method,
                       const std::string& direction) {
    const auto plan = planned(batch, method, direction);
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    const auto compiled = pjrt::compile(*topology_, program_of(plan->shape));
    EXPECT_TRUE(compiled.ok()) << compiled.error().message;
  }

 private:
  std::optional<pjrt::Topology> topology_;
};

TEST_F(XlaCompile, EveryDirectionAndMethodForATpu) {
  Request request;
  request.masks = {*parse_mask("causal & documents")};
  request.q_len = request.kv_len = 2048;
  OwnedFacts facts;
  facts.doc_ids.emplace(2048, 1);
  const auto batch = OwnedBatch::make(request, std::move(facts));
  ASSERT_TRUE(batch.ok()) << batch.error().message;
  for (const XlaMethod method :
       {XlaMethod::worklist, XlaMethod::chunked, XlaMethod::dense}) {
    for (const std::string direction : {"forward", "backward", "sinks"}) {
      SCOPED_TRACE(direction + " " + std::string(to_string(method)));
      expect_compiles(*batch, method, direction);
    }
  }
}

constexpr int32_t kFewTokens = 512;

// The facts that the mask names, for kFewTokens tokens.
OwnedFacts facts_for(const std::string& mask) {
  OwnedFacts facts;
  if (mask.find("tree") != mask.npos) {  // a trunk, then branches of 64 tokens
    facts.tree_enter.emplace();
    facts.tree_leave.emplace();
    for (int32_t i = 0; i < kFewTokens; ++i) {
      facts.tree_enter->push_back(i);
      facts.tree_leave->push_back(i < 256 ? kFewTokens : (i / 64 + 1) * 64);
    }
  }
  if (mask.find("same") != mask.npos) {
    facts.same_ids[0].emplace();
    for (int32_t i = 0; i < kFewTokens; ++i) {
      facts.same_ids[0]->push_back(i / 100 - 1);
    }
  }
  if (mask.find("blocks") != mask.npos) {
    facts.picks.emplace();
    facts.picks_k = 2;
    for (int32_t i = 0; i < kFewTokens; ++i) {
      facts.picks->push_back(i / 128);
      facts.picks->push_back(i < 128 ? -1 : 0);
    }
  }
  return facts;
}

// Each kind of fact beside documents is read by ops of its own.
TEST_F(XlaCompile, EveryKindOfFactForATpu) {
  for (const std::string mask :
       {"tree", "causal | same(a)", "causal & blocks(128)"}) {
    Request request;
    request.masks = {*parse_mask(mask)};
    request.q_len = request.kv_len = kFewTokens;
    const auto batch = OwnedBatch::make(request, facts_for(mask));
    ASSERT_TRUE(batch.ok()) << batch.error().message;
    for (const std::string direction : {"forward", "backward"}) {
      SCOPED_TRACE(mask + " " + direction);
      expect_compiles(*batch, XlaMethod::worklist, direction);
    }
  }
}

}  // namespace
}  // namespace tessera::xla
