// run/gate_per_step_test.cc: tells a kernel that compiles for each batch of one
// contract from one that does not.
#include "run/gate_per_step.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "lanes/lane.h"
#include "run/session_state.h"
#include "tests/idle_work.h"

namespace tessera::run {
namespace {

// The key of a fake kernel's programs, and whether new ones come from disk.
struct Keeps {
  bool by_contract = true;
  bool on_disk = false;
  std::set<std::string> programs;
};
Keeps keeps;  // a lane's `open` is a plain function

class CompilingLane : public lanes::OpenLane {
 public:
  Result<std::unique_ptr<lanes::LaneWork>> prepare(
      const Batch& batch, const AttentionCall&,
      std::unique_ptr<lanes::LaneWork>) override {
    auto contract = make_contract(batch);
    if (!contract) return contract.error();
    const std::string shape =
        std::to_string(batch.plan().forward.entries.size());
    const bool made =
        keeps.programs.insert(keeps.by_contract ? contract->key : shape).second;
    lanes::WorkFacts facts;
    ++(!made           ? facts.memory_hits
       : keeps.on_disk ? facts.disk_hits
                       : facts.compiles);
    return testing::idle_work(std::move(facts));
  }
  double bytes(const Request&, const AttentionCall&) const override {
    return 0;
  }
};

Result<std::unique_ptr<lanes::OpenLane>> open_compiling(
    const lanes::LaneOptions&) {
  return std::unique_ptr<lanes::OpenLane>(std::make_unique<CompilingLane>());
}

constexpr lanes::Lane kLanes[] = {{LaneId::cpu, open_compiling}};

std::vector<GateCase> cases_of(bool documents) {
  GateSizes sizes;
  sizes.tokens = {64, 1024, 4096};
  sizes.dtypes = {Dtype::f32};
  std::vector<GateCase> out;
  for (GateCase& c : gate_cases(sizes)) {
    if (c.lane != LaneId::cpu || c.doc_ids.empty() == documents) continue;
    out.push_back(std::move(c));
  }
  return out;
}

TEST(ShapePerStep, BothStepsAreOfOneContractAndNotOnePlan) {
  int unlike = 0;
  for (const GateCase& c : cases_of(/*documents=*/true)) {
    const auto steps = two_steps(c);
    ASSERT_TRUE(steps.ok()) << steps.error().message;
    ASSERT_EQ(steps->size(), 2u);
    const OwnedBatch& first = steps->front();
    const OwnedBatch& second = steps->back();
    EXPECT_EQ(make_contract(first)->key, make_contract(second)->key);
    const auto ids = first.facts().doc_ids.value();
    EXPECT_TRUE(std::ranges::equal(ids, c.doc_ids));
    EXPECT_FALSE(std::ranges::equal(ids, second.facts().doc_ids.value()));
    unlike += first.plan().forward.entries.size() !=
              second.plan().forward.entries.size();
  }
  EXPECT_GE(unlike, 6);
  for (const GateCase& c : cases_of(/*documents=*/false)) {
    EXPECT_TRUE(two_steps(c)->empty());
  }
}

TEST(ShapePerStep, IsToldByWhatTheSecondCompiles) {
  SessionOptions options;
  options.lane = LaneId::cpu;
  options.machine = {"A CPU", 8, {Isa::portable}, true, true, {}};
  for (const bool documents : {false, true}) {
    int told = 0;
    for (const GateCase& c : cases_of(documents)) {
      for (const bool on_disk : {false, true}) {
        const auto needs = [&](bool by_contract) {
          keeps = {by_contract, on_disk, {}};
          const auto session = open_session(options, kLanes);
          EXPECT_TRUE(session.ok());
          const auto found = needs_shape_per_step(c, *session);
          EXPECT_TRUE(found.ok()) << found.error().message;
          return *found;
        };
        EXPECT_FALSE(needs(/*by_contract=*/true)) << c.kernel;
        told += needs(/*by_contract=*/false);
      }
    }
    EXPECT_EQ(told > 0, documents);
  }
}

}  // namespace
}  // namespace tessera::run
