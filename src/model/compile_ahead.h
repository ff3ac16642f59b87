// model/compile_ahead.h: a step compiled for a TPU that is not here: the memory
// that it takes, as the compiler says, and the cycles that its attention will
// take, as its schedule predicts, and what its devices send.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "pjrt/compile.h"
#include "schedule/chip.h"
#include "schedule/collectives.h"
#include "tessera/train.h"

namespace tessera::model {

// Of one layer in one step; the forward kernel runs twice where blocks are
// computed again.
struct LayerCycles {
  std::string mask;
  int64_t forward_runs = 1;
  // Of one run; nothing where the schedule does not tell.
  std::optional<double> forward, backward;

  std::optional<double> cycles() const;
};

struct AheadReport {
  std::string target;                // "v6e:1x1"
  std::string platform_version;      // of the compiler
  std::string program;               // its key
  std::optional<Lowering> lowering;  // of the tile of scores, if it has one
  std::string specs;  // how its arrays lie on the mesh; "" on one device
  double compile_ms = 0;
  std::optional<pjrt::MemoryStats> memory;
  // One a layer, where attention is by our kernels; else none. Of the slowest
  // device of a mesh, in each direction. Where shards exchange tiles these are
  // all calls of a pass, one after the other: no time of what travels, and no
  // wait for it.
  std::vector<LayerCycles> attention;
  // Where shards exchange tiles: what the compiled program sends.
  std::vector<schedule::Collective> collectives;
  double gigahertz = 0;  // assumed of the chip; 0 where nothing is predicted
  std::optional<schedule::Calibration> calibration;  // of the chip

  std::optional<double> attention_cycles() const;
};

// A chip for each device of the mesh: "v6e:1x1", "v6e:2x2". Kernels of a CPU
// are nowhere on it, and a tile below its granule has a reason. The tile of
// scores on that chip, if there is one.
Result<std::optional<Lowering>> check_target(const TrainOptions& options,
                                             const std::string& target);

// By libtpu, unless the options name another plugin. Cycles are those of the
// step that takes `rows`.
Result<AheadReport> compile_ahead(const TrainOptions& options,
                                  const std::string& target, const Rows& rows);

}  // namespace tessera::model
