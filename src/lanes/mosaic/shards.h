// lanes/mosaic/shards.h: the program that each device of a mesh runs: calls of
// the kernel, some of them while tiles are exchanged.
//
// Each call takes other columns. Forward, an early call takes the device's own
// columns while tiles are received; a late call takes the received columns, and
// all columns of the received queries. Backward, the early call takes the first
// of the own columns; after the late call the gradients of received columns are
// sent home, while a last call takes the remaining own columns. Each call
// continues in the arrays of the previous one. dK and dV of a column come from
// one call alone; if a row of out or dQ has columns in several calls, its sums
// wait between the calls in float32. Where nothing is exchanged there is one
// call. With chunks of queries each call takes them one after another, as on
// one device.
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
// The calls of a program, in order. Where queries are received, backward has no
// early call: any column may need them.
std::vector<Turn> turns_of(const xla::ShardFrame& frame, bool backward);
// The program's name for an array of the kernel that each call has for itself;
// "" if all calls share the array.
std::string_view own_name(Turn turn, std::string_view array);
// The call's own label.
std::string call_label(std::string_view label, Turn turn);

// Tokens of each array of received keys: one array for each op that received
// some, so that they need no join; a single array where these are too many.
std::vector<int64_t> came_arrays_of(const xla::Exchange& keys);

struct ShardCall {
  Turn turn = Turn::only;
  PlannedKernel kernel;
};
struct ShardKernel {
  PlannedKernel planned;  // over all tiles that a device has
  std::vector<ShardCall> calls;
  xla::ShardFrame frame;
  std::string specs = {};  // fingerprint of how the program's arrays lie
};
// The kernel's contract names how the program's arrays lie.
Result<ShardKernel> plan_shards(const Batch& batch, const Shards& shards,
                                const AttentionCall& call,
                                const std::string& target,
                                const MosaicOptions& options);

// plan_shards with the setting that suits the tile, reduced to fit: the same
// for one contract, whatever the batch. Backward takes chunks of queries where
// query_chunk is set, or where nothing fits without them.
struct FittedShards {
  ShardKernel kernel;
  std::string chosen_by;
};
Result<FittedShards> fit_shards(const Batch& batch, const Shards& shards,
                                const AttentionCall& call,
                                const std::string& target,
                                const KernelTerms& terms,
                                int64_t query_chunk = 0);

// The number of steps of all devices in all calls, from the arrays of
// make_mosaic_shard_arrays.
int64_t shard_steps_in(const ShardKernel& kernel,
                       std::span<const MosaicArray> arrays);

xla::ShardArrays arrays_of(const ShardKernel& kernel);
// Writes the calls of one device into a program that has the device's arrays as
// arguments by name. `label` and the turn name the calls. Returns what they
// made of each result, in the order of arrays_of(); rows and columns that no
// call has may hold anything.
std::vector<xla::Made> write_calls(xla::Writer& w, const ShardKernel& kernel,
                                   const std::vector<xla::Awaited>& awaited,
                                   std::string_view label,
                                   const KernelCall& attend = call_kernel);
std::string program_text(const ShardKernel& kernel,
                         const KernelCall& attend = call_kernel);

}  // namespace tessera::mosaic
