// lanes/cpu/lane.cc: the cpu lane as a session sees it.
#include "lanes/cpu/lane.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/isa.h"
#include "base/timed.h"
#include "lanes/cpu/cpu.h"
#include "lanes/cpu/sink_rows.h"
#include "lanes/cpu/work.h"

namespace tessera::cpu {
namespace {

lanes::PassRun pass_of(const CpuRun& ran, double ms) {
  lanes::PassRun out;
  out.tiles_run = ran.tiles_run;
  out.tiles_skipped = ran.tiles_skipped;
  out.pairs_run = ran.pairs_run;
  out.run_ms = ms;
  return out;
}

class Work : public lanes::LaneWork {
 public:
  Work(CpuWork work, const AttentionShape& shape, const CpuOptions& options)
      : work_(std::move(work)), shape_(shape), options_(options) {}

  CpuWork& cpu() { return work_; }
  const lanes::WorkFacts& facts() const override { return facts_; }

  Result<lanes::PassRun> forward(const ForwardTensors& tensors,
                                 const StopFlag* stop) override {
    double ms = 0;
    auto ran = timed(ms, [&] {
      return cpu_forward(work_, shape_, tensors, options_, stop);
    });
    if (!ran) return ran.error();
    facts_.isa = to_string(ran->isa);
    facts_.threads = ran->threads;
    return pass_of(*ran, ms);
  }

  Result<lanes::PassRun> backward(const ForwardTensors& tensors,
                                  const Gradients& gradients,
                                  const StopFlag* stop) override {
    double ms = 0;
    auto ran = timed(ms, [&] {
      return cpu_backward(work_, shape_, tensors, gradients, options_, stop);
    });
    if (!ran) return ran.error();
    return pass_of(*ran, ms);
  }

  Result<lanes::SinkRows> sink_rows(const ForwardTensors& tensors,
                                    int64_t first_keys,
                                    const StopFlag* stop) override {
    if (!first_ || first_keys_ != first_keys) {
      auto batch =
          lanes::first_keys_batch(work_.state().batch, first_keys, "cpu");
      if (!batch) return batch.error();
      auto made = cpu_prepare(*batch, options_);
      if (!made) return made.error();
      first_ = std::move(*made);
      first_keys_ = first_keys;
    }
    return cpu_sink_rows(work_, *first_, shape_, tensors, options_, stop);
  }

 private:
  CpuWork work_;
  AttentionShape shape_;
  CpuOptions options_;
  lanes::WorkFacts facts_;
  std::optional<CpuWork> first_;  // prepared for first_keys_
  int64_t first_keys_ = 0;
};

class CpuLane : public lanes::OpenLane {
 public:
  explicit CpuLane(const CpuOptions& options) : options_(options) {}

  Result<std::unique_ptr<lanes::LaneWork>> prepare(
      const Batch& batch, const AttentionCall& call,
      std::unique_ptr<lanes::LaneWork> before) override {
    auto e = lanes::check_call("cpu", lanes::PlanSizes::of(batch.plan()), call);
    if (!e) return e.error();
    auto* const old = dynamic_cast<Work*>(before.get());
    auto work = cpu_prepare(batch, options_, old ? &old->cpu() : nullptr);
    if (!work) return work.error();
    return std::unique_ptr<lanes::LaneWork>(
        std::make_unique<Work>(std::move(*work), call.shape, options_));
  }

  double bytes(const Request& request,
               const AttentionCall& call) const override {
    return lanes::lane_bytes(LaneId::cpu, request, call);
  }

 private:
  CpuOptions options_;
};

}  // namespace

Result<std::unique_ptr<lanes::OpenLane>> open_cpu_lane(
    const lanes::LaneOptions& options) {
  if (auto isa = choose_isa(options.cpu.isa); !isa) return isa.error();
  return std::unique_ptr<lanes::OpenLane>(
      std::make_unique<CpuLane>(options.cpu));
}

}  // namespace tessera::cpu
