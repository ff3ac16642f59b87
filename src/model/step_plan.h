// model/step_plan.h: from a user's options to a step's shape, all of them
// checked.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/plans.h"
#include "model/spread.h"
#include "tessera/machine.h"
#include "tessera/train.h"

namespace tessera::model {

// Compiles for TPUs, those not here too.
inline constexpr const char* kTpuPlugin = "libtpu";

// What runs a step: where nobody named it the spec's own.
std::string plugin_of(const TrainOptions& options);
// By name or file; docs/train.md says what goes wrong on it.
bool is_xla_cpu_pjrt(const std::string& plugin);

// A program, and what it takes to feed it.
struct PlannedStep {
  StepShape shape;
  // One a place: of a device's rows, or of all where these are spread.
  std::vector<Request> requests;
  std::optional<Spread> spread = {};
};

// Of rows that are spread, which the options say: the same, and no program.
// What is left open of ceilings may be more than a kernel has room for.
struct PlannedRows {
  std::vector<Request> requests;
  Spread spread;
};
Result<PlannedRows> plan_rows(const TrainOptions& options);

// `target` is what TPU kernels are made for.
Result<PlannedStep> plan_step(const TrainOptions& options,
                              const std::string& target = kKernelTarget);

// The tile of scores in the matrix unit of a TPU that runs the step; nothing
// where there is none, or attention has no tiles.
Result<std::optional<Lowering>> lower_step(const TrainOptions& options,
                                           const std::optional<Chip>& chip);

}  // namespace tessera::model
