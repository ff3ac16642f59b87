// lanes/xla/planned.h: the static shape of a call's program, and the contract
// under which the program is cached.
#pragma once

#include <optional>
#include <string>

#include "lanes/xla/shape.h"
#include "tessera/attention.h"
#include "tessera/batch.h"
#include "tessera/machine.h"

namespace tessera::xla {

Element element_of(Dtype dtype);
Dtype dtype_of(Element element);

struct Planned {
  Shape shape;
  std::optional<Lowering> lowering;
  PlanContract plan;
  KernelContract kernel;
};

// The device that a program is made for. `target` is its name in contracts.
struct MadeFor {
  std::string target;
  std::string kind = {};  // of the device; empty: no device
  std::optional<std::string> lowering_reason = {};
};
// A tile of scores as lowered to a TPU's matrix unit; with `chunked` all
// queries by a tile's keys. nullopt if the device is no TPU, and with `dense`,
// which makes all scores at once.
Result<std::optional<Lowering>> lower_on(const Shape& s,
                                         const MadeFor& made_for);
// The same for a chip that need not be present.
Result<std::optional<Lowering>> lower_on(
    const Shape& s, const Chip& chip, const std::optional<std::string>& reason);

// The part of a shape that the request alone sets, which is all that lower_on()
// reads. Lengths are buckets, rounded up to whole tiles.
Shape request_shape(const Request& request, XlaMethod method);
// Of `present`, only which facts there are and the sizes of picks are read.
Shape call_shape(const Request& request, const Facts& present,
                 const PlanContract& contract, const AttentionCall& call,
                 bool backward, XlaMethod method);
KernelChoice call_choice(const Shape& s, const AttentionCall& call,
                         const std::string& target,
                         const std::optional<Lowering>& lowering);
Result<Planned> plan_call(const Request& request, const Facts& present,
                          PlanContract contract, const AttentionCall& call,
                          bool backward, XlaMethod method,
                          const MadeFor& made_for);

// The same for the program of the call's sink telemetry.
Result<Planned> plan_sinks(const Request& request, const Facts& present,
                           PlanContract contract, const AttentionCall& call,
                           XlaMethod method, const MadeFor& made_for);

}  // namespace tessera::xla
