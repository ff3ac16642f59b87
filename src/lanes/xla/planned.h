// lanes/xla/planned.h: a call as what is static about its program, and the
// contract that the program is kept under.
#pragma once

#include <string>

#include "lanes/xla/shape.h"
#include "tessera/attention.h"
#include "tessera/contract.h"

namespace tessera::xla {

Element element_of(Dtype dtype);
Dtype dtype_of(Element element);

struct Planned {
  Shape shape;
  PlanContract plan;
  KernelContract kernel;
};

// Of `present`, beside which facts there are, the sizes of picks are read.
Shape call_shape(const Request& request, const Facts& present,
                 const PlanContract& contract, const AttentionCall& call,
                 bool backward, XlaMethod method);
KernelChoice call_choice(const Shape& s, const AttentionCall& call,
                         const std::string& target);
Result<Planned> plan_call(const Request& request, const Facts& present,
                          PlanContract contract, const AttentionCall& call,
                          bool backward, XlaMethod method,
                          const std::string& target);

// The same for the program of its sink telemetry.
Result<Planned> plan_sinks(const Request& request, const Facts& present,
                           PlanContract contract, const AttentionCall& call,
                           XlaMethod method, const std::string& target);

// A call's arrays must be those that its program was compiled for.
Result<void> check_pass(const Shape& s, Dtype dtype, bool sink_logits,
                        bool dlse);

}  // namespace tessera::xla
