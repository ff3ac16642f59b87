// lanes/resident.h: arrays that stay with a lane between layers.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "lanes/pass_run.h"
#include "tessera/attention.h"
#include "tessera/result.h"

namespace tessera::lanes {

// An array that a lane keeps. Each lane casts it to its own type.
struct Resident {
  virtual ~Resident() = default;
};
using ResidentPtr = std::shared_ptr<const Resident>;

struct ResidentForward {
  const Resident *q = nullptr, *k = nullptr, *v = nullptr;
  std::optional<std::span<const float>> sink_logits;
  std::span<float> lse;  // written
  ResidentPtr out;       // written
};

struct ResidentBackward {
  const Resident *q = nullptr, *k = nullptr, *v = nullptr;
  std::optional<std::span<const float>> sink_logits;
  const Resident *out = nullptr, *dout = nullptr;
  std::span<const float> lse, dlse;
  ResidentPtr dq, dk, dv;         // written
  std::span<float> dsink_logits;  // written
};

// One batch prepared on a lane, run over resident arrays. The session has
// checked that the arrays are this batch's and have the right shape and type.
class ResidentWork {
 public:
  virtual ~ResidentWork() = default;
  // `queries`: the tokens of `t` are queries; else they are keys.
  virtual Result<ResidentPtr> put(const TensorView& t, bool queries) = 0;
  virtual Result<void> fetch(const Resident& array, bool queries,
                             const MutableTensorView& to) const = 0;
  virtual Result<PassRun> forward(ResidentForward& pass,
                                  const StopFlag* stop) = 0;
  virtual Result<PassRun> backward(ResidentBackward& pass,
                                   const StopFlag* stop) = 0;
};

}  // namespace tessera::lanes
