// lanes/mosaic/shards.h: one program for all devices of a mesh, each of which
// attends by calls of the kernel, some of them while tiles travel.
//
// Each call takes other columns: an early one the device's own, while tiles
// come, and a late one those that came, with all columns of queries that came.
// Backward the early one has the first of the device's own; then the gradients
// of the late one's go home, and a last call has the rest meanwhile. Each goes
// on in the arrays of the one before. A column of dK and dV is made by one call
// alone; the sums of a row of out or dQ that has columns in several wait
// between them in float32. Where nothing travels there is one call. In chunks
// of queries each call takes them one after another, as a kernel of one device.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lanes/mosaic/call.h"
#include "lanes/mosaic/settings.h"
#include "lanes/xla/shard_frame.h"
#include "tessera/mosaic.h"
#include "tessera/shard.h"

namespace tessera::mosaic {

enum class Turn : uint8_t { only, early, late, last };
// Of a program, in their order. Where queries come, backward has no early one:
// any column may need them.
std::vector<Turn> turns_of(const xla::ShardFrame& frame, bool backward);
// What a call of that turn has to itself: its name in the program of one of the
// kernel's arrays, or "" where all calls have the same.
std::string_view own_name(Turn turn, std::string_view array);
// The call's own label.
std::string call_label(std::string_view label, Turn turn);

// Keys that come lie in an array for each op that brought them, so that nobody
// joins them; where these are many, in one: the tokens of each.
std::vector<int64_t> came_arrays_of(const xla::Exchange& keys);

struct ShardCall {
  Turn turn = Turn::only;
  PlannedKernel kernel;
};
struct ShardKernel {
  PlannedKernel planned;  // over all tiles that a device has
  std::vector<ShardCall> calls;
  xla::ShardFrame frame;
  std::string specs = {};  // how its program's arrays lie, as a fingerprint
};
// Its contract names how the program's arrays lie.
Result<ShardKernel> plan_shards(const Batch& batch, const Shards& shards,
                                const AttentionCall& call,
                                const std::string& target,
                                const MosaicOptions& options);

// With the settings that suit the tile, as far as they fit: those of the
// contract, whatever the batch. Backward in chunks of queries where these are
// said, or where none fits with all.
struct FittedShards {
  ShardKernel kernel;
  std::string chosen_by;
};
Result<FittedShards> fit_shards(const Batch& batch, const Shards& shards,
                                const AttentionCall& call,
                                const std::string& target,
                                const KernelTerms& terms,
                                int64_t query_chunk = 0);

// Steps of all devices in all calls, by the arrays of make_mosaic_shard_arrays.
int64_t shard_steps_in(const ShardKernel& kernel,
                       std::span<const MosaicArray> arrays);

xla::ShardArrays arrays_of(const ShardKernel& kernel);
// The calls of one device, within a program in which its arrays stand under
// their names; they are told apart by the label and their turn. What they made
// of each result, in the order of arrays_of(): rows and columns that no call
// has may hold anything.
std::vector<xla::Made> write_calls(xla::Writer& w, const ShardKernel& kernel,
                                   const std::vector<xla::Awaited>& awaited,
                                   std::string_view label,
                                   const KernelCall& attend = call_kernel);
std::string program_text(const ShardKernel& kernel,
                         const KernelCall& attend = call_kernel);

}  // namespace tessera::mosaic
