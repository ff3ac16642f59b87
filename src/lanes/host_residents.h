// lanes/host_residents.h: arrays kept between layers as dense copies in the
// host's memory, for lanes without resident arrays of their own.
#pragma once

#include "lanes/lane.h"
#include "lanes/resident.h"
#include "tessera/plan.h"

namespace tessera::lanes {

class HostResidents : public ResidentWork {
 public:
  HostResidents(LaneWork& work, const Plan& plan, const AttentionCall& call)
      : work_(work), plan_(plan), call_(call) {}

  Result<ResidentPtr> put(const TensorView& t, bool queries) override;
  Result<void> fetch(const Resident& array, bool queries,
                     const MutableTensorView& to) const override;
  Result<PassRun> forward(ResidentForward& pass, const StopFlag* stop) override;
  Result<PassRun> backward(ResidentBackward& pass,
                           const StopFlag* stop) override;

 private:
  LaneWork& work_;
  const Plan& plan_;
  const AttentionCall& call_;
};

}  // namespace tessera::lanes
