// lanes/xla/work.h: the state of a batch that is prepared for the xla lane.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lanes/program_arrays.h"
#include "lanes/tensors.h"
#include "lanes/xla/arrays.h"
#include "lanes/xla/device_parts.h"
#include "lanes/xla/lane.h"
#include "lanes/xla/shape.h"
#include "pjrt/execute.h"

namespace tessera::xla {

// The inputs of a program, by name: in host memory, or already on the device.
class Inputs {
 public:
  void add(std::string name, const void* data) {
    arrays_[std::move(name)] = {{}, data, nullptr};
  }
  void add(std::string name, lanes::Staged staged) {
    staged_.push_back(std::move(staged));
    add(std::move(name), staged_.back().data());
  }
  void add(std::string name, const pjrt::Buffer& buffer) {
    arrays_[std::move(name)] = {{}, nullptr, &buffer};
  }
  void add(std::string name, const lanes::Resident& there) {
    add(std::move(name), static_cast<const DeviceParts&>(there).parts.front());
  }
  // Empty if there is no such input.
  pjrt::HostArray of(const std::string& name) const {
    const auto at = arrays_.find(name);
    return at == arrays_.end() ? pjrt::HostArray{} : at->second;
  }

 private:
  std::map<std::string, pjrt::HostArray> arrays_;
  std::deque<lanes::Staged> staged_;
};

// One direction of a batch, ready to run. The buffers in `sent` may read
// `integers` in place.
struct Pass {
  Shape shape;
  XlaRun prepared;
  std::shared_ptr<const pjrt::Loaded> program;
  Integers integers;
  std::map<std::string, pjrt::Buffer> sent;
};

struct XlaWork::State {
  std::shared_ptr<const XlaLane::State> lane;
  Batch batch;
  AttentionShape shape;
  std::unique_ptr<Pass> forward, backward, sinks;

  lanes::PlanSizes sizes() const { return lanes::PlanSizes::of(batch.plan()); }
  // Fails if the call was prepared without backward.
  Result<const Pass*> pass(bool backward) const;
  Result<XlaRun> run(const Pass& pass, const Inputs& inputs,
                     std::vector<lanes::ProgramOutput> outputs,
                     const StopFlag* stop) const;
};

Result<std::string> program_text(const Shape& shape);

}  // namespace tessera::xla
