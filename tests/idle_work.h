// tests/idle_work.h: prepared work that runs nothing, for fake lanes.
#pragma once

#include <memory>
#include <utility>

#include "lanes/lane.h"

namespace tessera::testing {

class IdleWork : public lanes::LaneWork {
 public:
  explicit IdleWork(lanes::WorkFacts facts) : facts_(std::move(facts)) {}
  const lanes::WorkFacts& facts() const override { return facts_; }
  Result<lanes::PassRun> forward(const ForwardTensors&,
                                 const StopFlag*) override {
    return lanes::PassRun{};
  }
  Result<lanes::PassRun> backward(const ForwardTensors&, const Gradients&,
                                  const StopFlag*) override {
    return lanes::PassRun{};
  }

 private:
  lanes::WorkFacts facts_;
};

inline std::unique_ptr<lanes::LaneWork> idle_work(lanes::WorkFacts facts = {}) {
  return std::make_unique<IdleWork>(std::move(facts));
}

}  // namespace tessera::testing
