// tessera/fit.h: what a call takes of a chip's memory, told before anything is
// compiled or run (docs/memory.md).
//
//   FitCall asked{request, present, call};
//   asked.chip = "v6e";
//   auto budget = make_budget(asked);           // or an error: no such program
//   if (!budget->fits()) what_fits(asked);
//
// All of it is pure: no plugin and no device; of facts it reads only which
// there are.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/attention.h"
#include "tessera/dispatch.h"
#include "tessera/facts.h"
#include "tessera/machine.h"
#include "tessera/mosaic.h"
#include "tessera/result.h"
#include "tessera/shard.h"

namespace tessera {

// Bytes of an array in the layout that the TPU's compiler gives to arguments
// and results, with the padding of its tiles.
int64_t device_bytes(Dtype dtype, std::span<const int64_t> dims);

enum class MemoryKind : uint8_t {
  input,     // q, k, v, sink logits
  output,    // out; the entropy of sink telemetry
  lse,       // the log-sum-exp
  gradient,  // those that come in and those that go out
  metadata,  // worklist, ids, bounds, counts
  scratch,   // what the program makes for itself
};
std::string_view to_string(MemoryKind kind);

struct MemoryPart {
  std::string name;  // "q"
  MemoryKind kind = MemoryKind::input;
  int64_t bytes = 0;
  int64_t padding = 0;    // of them, in an array's tiles
  int64_t least = 0;      // of them, that lie in HBM whatever the compiler does
  bool residual = false;  // the forward pass leaves it for the backward pass
  bool core = false;      // small enough that a core's own memory may take it
};

// One program: what it takes, gives, and needs between.
struct PassMemory {
  bool backward = false;
  std::vector<MemoryPart> arguments, outputs, scratch;
  // For lane mosaic: the vector memory that its kernel works in, which is not
  // HBM. If a mesh's program has several kernels, that of the largest.
  std::optional<VectorMemory> vector_memory = {};

  int64_t argument_bytes() const;
  int64_t output_bytes() const;
  int64_t scratch_bytes() const;
  int64_t core_bytes() const;  // of scratch, at most
  int64_t total() const;       // of the three
  int64_t least() const;       // of total(), as of each part
};

// What is asked. `present` only says which facts there are, and the sizes of
// picks.
struct FitCall {
  Request request;
  Facts present;
  AttentionCall call;
  LaneId lane = LaneId::xla;               // or mosaic
  XlaMethod method = XlaMethod::worklist;  // of the xla lane
  MosaicOptions mosaic;  // of that lane; of either its lowering_reason
  // Tiles a pass of lane mosaic come from the table, as far as they fit, for
  // each direction, as in a session.
  bool open_passes = false;
  std::string chip = "v6e";
};

struct Budget {
  Chip chip;
  PassMemory forward;
  std::optional<PassMemory> backward;  // where the call has one
  // Lane mosaic's program of sink telemetry, where the call has one.
  std::optional<PassMemory> sinks;

  const PassMemory& largest() const;
  int64_t residuals() const;  // bytes; 0 without a backward pass
  // The larger program, its code and what it takes beside.
  int64_t needed() const;
  bool fits() const { return needed() <= chip.room; }
  // True: no compiler can make it fit. If neither this nor fits(), the compiler
  // decides.
  bool beyond_room() const;
};
// Room for a program's code; those of our lanes were smaller.
inline constexpr int64_t kProgramRoom = int64_t{16} << 20;

Result<Budget> make_budget(const FitCall& asked);
// The call for the programs of one batch: steps that its request leaves open
// are those of the batch's bucket.
Result<FitCall> fit_call(const Batch& batch, const AttentionCall& call,
                         LaneId lane, std::string chip);

// The StableHLO that a direction of the call compiles.
Result<std::string> program_text(const FitCall& asked, bool backward);
Result<std::string> sinks_text(const FitCall& asked);  // of lane mosaic

// One change alone that makes it fit, the largest of its kind.
struct Remedy {
  std::string change;  // "q_len and kv_len"
  int64_t found = 0, fits = 0;
  int64_t needed = 0;  // then
};
// Found by making a budget of each change tried. Empty: no single change is
// enough.
std::vector<Remedy> what_fits(const FitCall& asked);
// All of a budget, with what would fit where it does not.
std::string budget_json(const Budget& budget,
                        std::span<const Remedy> remedies = {});

// An error that names the largest parts and what would fit.
Result<void> check_fits(const FitCall& asked, const Budget& budget);
// The same error, but only for a call that is beyond room: ask before a program
// is compiled. A call that has no budget is no error here: the lane refuses it.
Result<void> check_room(const FitCall& asked);

// The same of a batch on a mesh: each device's part of one program for all, and
// the tiles that come and go.
struct MeshFitCall {
  const Batch* batch = nullptr;
  Mesh mesh;
  ShardOptions options;  // but for shape and dtype, which the call has
  AttentionCall call;
  LaneId lane = LaneId::xla;  // or mosaic
  std::string chip = "v6e";
  std::optional<std::string> lowering_reason = {};  // of a small tile or block
  Numbers numbers = Numbers::finite;                // of lane mosaic
  RowSum row_sum = RowSum::exact;                   // the same
  int64_t query_chunk = 0;  // of its backward kernel, as MosaicOptions has it
};
Result<Budget> make_budget(const MeshFitCall& asked);
Result<std::string> program_text(const MeshFitCall& asked, bool backward);
// Of more devices along one axis.
std::vector<Remedy> what_fits(const MeshFitCall& asked);
Result<void> check_fits(const MeshFitCall& asked, const Budget& budget);
Result<void> check_room(const MeshFitCall& asked);

}  // namespace tessera
