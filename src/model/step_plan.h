// model/step_plan.h: checks a user's options, and makes a step's shape.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/plans.h"
#include "model/spread.h"
#include "tessera/machine.h"
#include "tessera/train.h"

namespace tessera::model {

// The plugin that compiles for TPUs, attached or not.
inline constexpr const char* kTpuPlugin = "libtpu";

// The plugin that runs a step: the named one, else the default of the spec.
std::string plugin_of(const TrainOptions& options);
// By name or path; docs/train.md describes what goes wrong on this plugin.
bool is_xla_cpu_pjrt(const std::string& plugin);

// A program, and what is needed to feed it.
struct PlannedStep {
  StepShape shape;
  // One per place, over a device's rows, or over all rows if they are spread.
  std::vector<Request> requests;
  std::optional<Spread> spread = {};
};

// The plan of spread rows without a program; the options must have shards.
// Ceilings that are left open may be more than a kernel has room for.
struct PlannedRows {
  std::vector<Request> requests;
  Spread spread;
};
Result<PlannedRows> plan_rows(const TrainOptions& options);

// TPU kernels are made for `target`.
Result<PlannedStep> plan_step(const TrainOptions& options,
                              const std::string& target = kKernelTarget);

// The tile of scores in the matrix unit of the TPU that runs the step; nothing
// without a TPU, or if attention has no tiles.
Result<std::optional<Lowering>> lower_step(const TrainOptions& options,
                                           const std::optional<Chip>& chip);

}  // namespace tessera::model
