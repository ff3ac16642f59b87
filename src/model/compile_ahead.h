// model/compile_ahead.h: compiles a step for a TPU that is not attached, and
// reports the memory that the compiler says it takes, the cycles that the
// schedule predicts for its attention, and what its devices send.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "pjrt/compile.h"
#include "schedule/collectives.h"
#include "tessera/train.h"

namespace tessera::model {

// Of one layer in one step. Recomputed blocks run the forward kernel twice.
struct LayerCycles {
  std::string mask;
  int64_t forward_runs = 1;
  // Cycles of one run; nothing where the schedule gives none.
  std::optional<double> forward, backward;

  std::optional<double> cycles() const;
};

struct AheadReport {
  std::string target;                // "v6e:1x1"
  std::string platform_version;      // of the compiler
  std::string program;               // the digest of its text
  std::optional<Lowering> lowering;  // of the tile of scores, if it has one
  std::string specs;  // how its arrays lie on the mesh; "" on one device
  double compile_ms = 0;
  std::optional<pjrt::MemoryStats> memory;
  // One entry per layer if attention is by our kernels, else none. On a mesh
  // each direction has the cycles of its slowest device. Where shards exchange
  // tiles, cycles are the sum over the calls of a pass; time of transfers and
  // waits for them is left out.
  std::vector<LayerCycles> attention;
  // Where shards exchange tiles: what the compiled program sends.
  std::vector<schedule::Collective> collectives;
  double gigahertz = 0;  // of the chip, assumed; 0 if nothing is predicted

  std::optional<double> attention_cycles() const;
};

// Checks that the target ("v6e:1x1", "v6e:2x2") has a chip for each device of
// the mesh, that no CPU kernels are called, and that a tile below the granule
// has a reason. Returns the tile of scores on the chip, if there is one.
Result<std::optional<Lowering>> check_target(const TrainOptions& options,
                                             const std::string& target);

// Compiles with libtpu, unless the options name another plugin. Cycles are
// predicted for the step that takes `rows`.
Result<AheadReport> compile_ahead(const TrainOptions& options,
                                  const std::string& target, const Rows& rows);

}  // namespace tessera::model
