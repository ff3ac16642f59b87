// lanes/xla/planned.h: a call as what is static about its program, and the
// contract that the program is kept under.
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

// What runs a program: `target` is what contracts call it.
struct MadeFor {
  std::string target;
  std::string kind = {};  // of the device, where one is there
  std::optional<std::string> lowering_reason = {};
};
// Where it is a TPU: a tile of scores in its matrix unit, of `chunked` all
// queries by a tile's keys. Nothing where all scores are made at a time.
Result<std::optional<Lowering>> lower_on(const Shape& s,
                                         const MadeFor& made_for);
// The same of a chip that need not be here.
Result<std::optional<Lowering>> lower_on(
    const Shape& s, const Chip& chip, const std::optional<std::string>& reason);

// What of it the request alone says, which is all that lower_on() reads: its
// lengths are buckets in whole tiles.
Shape request_shape(const Request& request, XlaMethod method);
// Of `present`, beside which facts there are, the sizes of picks are read.
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

// The same for the program of its sink telemetry.
Result<Planned> plan_sinks(const Request& request, const Facts& present,
                           PlanContract contract, const AttentionCall& call,
                           XlaMethod method, const MadeFor& made_for);

}  // namespace tessera::xla
