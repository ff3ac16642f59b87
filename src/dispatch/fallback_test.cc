// dispatch/fallback_test.cc: lanes that fail, each in turn: strict gives the
// error, lenient what stepped in and why.
#include "dispatch/fallback.h"

#include <gtest/gtest.h>

#include "base/fail.h"

namespace tessera {
namespace {

RequestFeatures features(int64_t dim = 64) {
  Request request;
  request.masks = {*parse_mask("causal")};
  request.q_len = request.kv_len = 64;
  return features_of(request, {}, {2, 2, dim, dim, {}, 0}, {});
}

// Every lane runs, but the named ones, which fail before or after forward.
struct Lanes {
  std::vector<LaneId> fail;
  bool late = false;
  std::vector<LaneId> asked = {};

  StartLane start() {
    return [this](const Runner& runner, bool& forward_ran) -> Result<LaneRun> {
      asked.push_back(runner.lane);
      if (std::find(fail.begin(), fail.end(), runner.lane) == fail.end()) {
        LaneRun run;
        run.tiles_run = 7;
        return run;
      }
      forward_ran = late;
      return unavailable("test", "it must start, found {}",
                         to_string(runner.lane));
    };
  }
};

constexpr LaneId kRunning[] = {LaneId::cpu, LaneId::xla, LaneId::reference};

TEST(Fallback, StrictIsTheLanesOwnError) {
  for (const LaneId lane : kRunning) {
    Lanes lanes{{lane}};
    const auto r = execute(lane, {}, features(), lanes.start());
    ASSERT_FALSE(r.ok());
    EXPECT_EQ(r.error().message,
              "[test] it must start, found " + std::string(to_string(lane)));
    EXPECT_EQ(lanes.asked, std::vector{lane});
  }
}

TEST(Fallback, LenientGoesDownTheOrder) {
  for (const LaneId lane : kRunning) {
    std::vector<LaneId> order;
    for (const LaneId other : kRunning) {
      if (other != lane) order.push_back(other);
    }
    for (const bool second_too : {false, true}) {
      Lanes lanes{{lane}};
      if (second_too) lanes.fail.push_back(order[0]);
      const auto r = execute(lane, order, features(), lanes.start());
      ASSERT_TRUE(r.ok()) << r.error().message;
      EXPECT_EQ(r->lane, order[second_too ? 1 : 0]);
      EXPECT_EQ(r->run.tiles_run, 7);
      const std::string first(to_string(lane));
      std::string due =
          first + " did not start: [test] it must start, found " + first;
      if (second_too) {
        const std::string second(to_string(order[0]));
        due += "; " + second + " did not start: [test] it must start, found " +
               second;
      }
      EXPECT_EQ(r->reason(), due);
    }
  }
}

TEST(Fallback, ALaneThatStartsNeedsNoReason) {
  for (const LaneId lane : kRunning) {
    Lanes lanes{{}};
    const auto r = execute(lane, std::vector{LaneId::reference}, features(),
                           lanes.start());
    ASSERT_TRUE(r.ok());
    EXPECT_EQ(r->lane, lane);
    EXPECT_FALSE(r->reason().has_value());
  }
}

// What ran half has started: nobody steps in.
TEST(Fallback, AFailureAfterForwardIsAnError) {
  for (const LaneId lane : kRunning) {
    Lanes lanes{{lane}, true};
    const LaneId other = lane == LaneId::cpu ? LaneId::xla : LaneId::cpu;
    const auto r = execute(lane, std::vector{other}, features(), lanes.start());
    ASSERT_FALSE(r.ok());
    EXPECT_TRUE(r.error().message.starts_with("[test] "));
    EXPECT_EQ(lanes.asked, std::vector{lane});
  }
}

TEST(Fallback, EveryLaneMayFail) {
  Lanes lanes{{LaneId::cpu, LaneId::xla, LaneId::reference}};
  const auto r =
      execute(LaneId::xla, std::vector{LaneId::cpu}, features(), lanes.start());
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().message,
            "[dispatch] one of the lanes must start, found: xla did not start: "
            "[test] it must start, found xla; cpu did not start: [test] it "
            "must start, found cpu");
}

// Lanes that cannot run such a request are told so and not asked.
TEST(Fallback, OnlyLanesThatCanAreAsked) {
  Lanes lanes{{}};
  const auto r =
      execute(LaneId::cpu, std::vector{LaneId::xla, LaneId::reference},
              features(12), lanes.start());
  ASSERT_TRUE(r.ok()) << r.error().message;
  EXPECT_EQ(r->lane, LaneId::reference);
  EXPECT_EQ(lanes.asked, std::vector{LaneId::reference});
  EXPECT_EQ(r->failed.size(), 2u);
  EXPECT_EQ(r->failed[0].why,
            "[dispatch] the cpu lane must be able to run this, found: its head "
            "dim is a multiple of 8 up to 256, not 12");
}

TEST(Fallback, OnlyLanesOfEqualMeaning) {
  const auto refused = [](std::vector<LaneId> order) {
    const auto r = check_fallback(order);
    return r ? std::string() : r.error().message;
  };
  EXPECT_EQ(refused({LaneId::cpu, LaneId::xla, LaneId::reference}), "");
  EXPECT_EQ(refused({LaneId::jax_bridge}),
            "[dispatch] a fallback must mean the same as the request, found "
            "jax_bridge, which computes what its artifact holds");
  EXPECT_EQ(
      refused({LaneId::mosaic}),
      "[dispatch] a fallback must be a lane that runs, found mosaic: this "
      "version only compiles it");
  EXPECT_EQ(refused({LaneId::cuda}),
            "[dispatch] a fallback must be a lane that runs, found cuda: this "
            "version has no cuda lane");
  EXPECT_EQ(refused({LaneId::cpu, LaneId::cpu}),
            "[dispatch] a fallback is named once, found cpu twice");
  Lanes lanes{{}};
  EXPECT_FALSE(execute(LaneId::cpu, std::vector{LaneId::jax_bridge}, features(),
                       lanes.start())
                   .ok());
  EXPECT_TRUE(lanes.asked.empty());
}

}  // namespace
}  // namespace tessera
