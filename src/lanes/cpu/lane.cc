// lanes/cpu/lane.cc: the cpu lane as a session sees it.
#include "lanes/cpu/lane.h"

#include <algorithm>
#include <utility>

#include "base/isa.h"
#include "base/timed.h"
#include "lanes/cpu/cpu.h"
#include "lanes/cpu/work.h"

namespace tessera {
namespace {

PassRun pass_of(const CpuRun& ran, double ms) {
  PassRun out;
  out.tiles_run = ran.tiles_run;
  out.tiles_skipped = ran.tiles_skipped;
  out.pairs_run = ran.pairs_run;
  out.run_ms = ms;
  return out;
}

class Work : public LaneWork {
 public:
  Work(CpuWork work, const AttentionShape& shape, const CpuOptions& options)
      : work_(std::move(work)), shape_(shape), options_(options) {}

  CpuWork& cpu() { return work_; }
  const WorkFacts& facts() const override { return facts_; }

  Result<PassRun> forward(const ForwardTensors& tensors,
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

  Result<PassRun> backward(const ForwardTensors& tensors,
                           const Gradients& gradients,
                           const StopFlag* stop) override {
    double ms = 0;
    auto ran = timed(ms, [&] {
      return cpu_backward(work_, shape_, backward_tensors(tensors, gradients),
                          options_, stop);
    });
    if (!ran) return ran.error();
    return pass_of(*ran, ms);
  }

 private:
  CpuWork work_;
  AttentionShape shape_;
  CpuOptions options_;
  WorkFacts facts_;
};

class CpuLane : public OpenLane {
 public:
  explicit CpuLane(const CpuOptions& options) : options_(options) {}

  Result<std::unique_ptr<LaneWork>> prepare(
      const Batch& batch, const AttentionCall& call,
      std::unique_ptr<LaneWork> before) override {
    auto e = check_call("cpu", PlanSizes::of(batch.plan()), call);
    if (!e) return e.error();
    auto* const old = dynamic_cast<Work*>(before.get());
    auto work = cpu_prepare(batch, options_, old ? &old->cpu() : nullptr);
    if (!work) return work.error();
    return std::unique_ptr<LaneWork>(
        std::make_unique<Work>(std::move(*work), call.shape, options_));
  }

  double bytes(const Request& request,
               const AttentionCall& call) const override {
    return lane_bytes(LaneId::cpu, request, call);
  }

 private:
  CpuOptions options_;
};

}  // namespace

Result<std::unique_ptr<OpenLane>> open_cpu_lane(const LaneOptions& options) {
  if (auto isa = choose_isa(options.cpu.isa); !isa) return isa.error();
  return std::unique_ptr<OpenLane>(std::make_unique<CpuLane>(options.cpu));
}

}  // namespace tessera
