// lanes/xla/compile_test.cc: the vendor's compiler takes the programs of every
// direction and method for a TPU that is not here. Skipped without libtpu.
#include "pjrt/compile.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

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

TEST(XlaCompile, EveryDirectionAndMethodForATpu) {
  TESSERA_NEEDS_PLUGINS();
  const auto plugin = testing::real_plugin("libtpu");
  if (testing::is_absent(plugin)) GTEST_SKIP() << plugin.error().message;
  ASSERT_TRUE(plugin.ok()) << plugin.error().message;
  const auto topology = pjrt::make_topology(**plugin, "v6e:1x1");
  ASSERT_TRUE(topology.ok()) << topology.error().message;
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
      const auto plan = planned(*batch, method, direction);
      ASSERT_TRUE(plan.ok()) << plan.error().message;
      const auto compiled = pjrt::compile(*topology, program_of(plan->shape));
      EXPECT_TRUE(compiled.ok()) << compiled.error().message;
    }
  }
}

}  // namespace
}  // namespace tessera::xla
