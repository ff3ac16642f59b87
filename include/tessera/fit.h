// tessera/fit.h: how much of a chip's memory a call needs, computed before
// anything is compiled or run (docs/memory.md).
//
//   FitCall asked{request, present, call};
//   asked.chip = "v6e";
//   auto budget = make_budget(asked);           // or an error: no such program
//   if (!budget->fits()) what_fits(asked);
//
// All functions are pure and use no plugin and no device. Of facts they read
// only which are present.
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

// The bytes of an argument or a result in the layout that the TPU's compiler
// gives it, including the padding of its tiles.
int64_t device_bytes(Dtype dtype, std::span<const int64_t> dims);

enum class MemoryKind : uint8_t {
  input,     // q, k, v, sink logits
  output,    // out; the entropy of sink telemetry
  lse,       // the log-sum-exp
  gradient,  // gradients that the program reads or writes
  metadata,  // worklist, ids, bounds, counts
  scratch,   // temporary arrays of the program
};
std::string_view to_string(MemoryKind kind);

struct MemoryPart {
  std::string name;  // "q"
  MemoryKind kind = MemoryKind::input;
  int64_t bytes = 0;
  int64_t padding = 0;    // of `bytes`: padding of the array's tiles
  int64_t least = 0;      // of `bytes`: in HBM whatever the compiler does
  bool residual = false;  // the forward pass leaves it for the backward pass
  bool core = false;      // small enough to be in a core's own memory
};

// The memory of one program: arguments, outputs and scratch.
struct PassMemory {
  bool backward = false;
  std::vector<MemoryPart> arguments, outputs, scratch;
  // Lane mosaic: the vector memory of its kernel, which is not part of HBM. If
  // a mesh's program has several kernels, that of the largest.
  std::optional<VectorMemory> vector_memory = {};

  int64_t argument_bytes() const;
  int64_t output_bytes() const;
  int64_t scratch_bytes() const;
  int64_t core_bytes() const;  // scratch that a core's memory may hold
  int64_t total() const;       // arguments, outputs and scratch
  int64_t least() const;       // sum of MemoryPart::least
};

// The call to compute a budget for. Of `present` only the presence of each fact
// and the sizes of picks are read.
struct FitCall {
  Request request;
  Facts present;
  AttentionCall call;
  LaneId lane = LaneId::xla;               // or mosaic
  XlaMethod method = XlaMethod::worklist;  // of lane xla
  // Of lane mosaic; lane xla uses its lowering_reason too.
  MosaicOptions mosaic;
  // Lane mosaic takes tiles per pass from its table for each direction, as far
  // as they fit, as a session does.
  bool open_passes = false;
  std::string chip = "v6e";
};

struct Budget {
  Chip chip;
  PassMemory forward;
  std::optional<PassMemory> backward;  // if the call has a backward pass
  // Lane mosaic's program of sink telemetry, if the call asks for it.
  std::optional<PassMemory> sinks;

  const PassMemory& largest() const;
  int64_t residuals() const;  // bytes; 0 without a backward pass
  // Bytes of every other layer that a caller saves if it computes blocks again
  // instead of keeping residuals. This call needs as much either way: its
  // backward pass reads them. Sink logits are parameters and stay.
  int64_t recompute_saves() const;
  // Bytes of largest() and kProgramRoom.
  int64_t needed() const;
  bool fits() const { return needed() <= chip.room; }
  // True: no compiler can make the call fit. If this and fits() are both false,
  // it depends on the compiler.
  bool beyond_room() const;
};
// Bytes allowed for a program's code; programs of Tessera's lanes took less.
inline constexpr int64_t kProgramRoom = int64_t{16} << 20;

Result<Budget> make_budget(const FitCall& asked);
// The FitCall for the programs of one batch. If the request has no ceiling of
// steps, the bucket of the batch's steps is used.
Result<FitCall> fit_call(const Batch& batch, const AttentionCall& call,
                         LaneId lane, std::string chip);

// The StableHLO of one direction of the call.
Result<std::string> program_text(const FitCall& asked, bool backward);
// The StableHLO of lane mosaic's program of sink telemetry.
Result<std::string> sinks_text(const FitCall& asked);

// One change that alone makes the call fit, with the largest value that fits.
struct Remedy {
  std::string change;  // "q_len and kv_len"
  int64_t found = 0, fits = 0;
  int64_t needed = 0;  // bytes needed after the change
};
// Computes the budget of each candidate change. Empty: no single change is
// enough.
std::vector<Remedy> what_fits(const FitCall& asked);
// The whole budget, and the remedies for a call that does not fit.
std::string budget_json(const Budget& budget,
                        std::span<const Remedy> remedies = {});

// An error if the call does not fit; it names the largest parts and what would
// fit.
Result<void> check_fits(const FitCall& asked, const Budget& budget);
// The same error, but only if Budget::beyond_room(): a check before a program
// is compiled. If no budget can be made, this returns no error; the lane
// refuses such a call itself.
Result<void> check_room(const FitCall& asked);

// The same for a batch on a mesh: the memory on one device of the program that
// all devices run, including tiles that it sends and receives.
struct MeshFitCall {
  const Batch* batch = nullptr;
  Mesh mesh;
  ShardOptions options;  // shape, dtype and dlse are those of the call
  AttentionCall call;
  LaneId lane = LaneId::xla;  // or mosaic
  std::string chip = "v6e";
  std::optional<std::string> lowering_reason = {};  // see MosaicOptions
  Numbers numbers = Numbers::finite;                // lane mosaic only
  RowSum row_sum = RowSum::exact;                   // lane mosaic only
  int64_t query_chunk = 0;                          // see MosaicOptions
};
Result<Budget> make_budget(const MeshFitCall& asked);
Result<std::string> program_text(const MeshFitCall& asked, bool backward);
// Each remedy is a larger number of devices along one axis.
std::vector<Remedy> what_fits(const MeshFitCall& asked);
Result<void> check_fits(const MeshFitCall& asked, const Budget& budget);
Result<void> check_room(const MeshFitCall& asked);

}  // namespace tessera
