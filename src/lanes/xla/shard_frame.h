// lanes/xla/shard_frame.h: what programs for all devices of a mesh share,
// whatever attends on each: arrays that say how they lie, tiles that travel to
// where they are needed, and what was done for others going home.
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lanes/xla/exchange.h"
#include "lanes/xla/writer.h"
#include "tessera/shard.h"

namespace tessera::xla {

struct ShardFrame {
  Mesh mesh;
  Exchange rows, columns;  // query tiles, key tiles
};
ShardFrame frame_of(const Shards& shards);

// A device's part of an array, and the axes that split it. Of integers each
// device has its own, so that they begin with dimensions of 1 for "data",
// "head" and "seq".
struct ShardArray {
  Argument part;
  std::vector<std::string> axes;
  bool is_own = false;  // an integer array of each device
};
struct ShardArrays {
  std::vector<ShardArray> arguments, results;  // in the program's order
};

// k, v, dk, dv; of arrays of tokens all others are of queries.
bool is_of_keys(std::string_view array);
// [1, heads, tokens, ...] as the device has it before tiles come.
ShardArray own_part(const ShardFrame& frame, Argument a);
ShardArray own_integers(const ShardFrame& frame, std::string name, Dims dims);
// Of these what one device has, without the dimensions that tell devices apart.
Argument of_device(const ShardArray& integers);
// [heads], or of each device [1, 1, heads] where it is `summed` by the caller.
ShardArray of_heads(const ShardFrame& frame, std::string name, int64_t heads,
                    bool summed);
// Where tiles travel: which of each device, and of a ragged exchange its
// slices; first of all arguments.
std::vector<ShardArray> exchange_arrays(const ShardFrame& frame);
// Of a shard, their values by name.
std::map<std::string_view, std::vector<int32_t>> exchange_integers(
    const ShardFrame& frame, const Shards& shards, size_t shard);

// Tiles that are on their way while a device attends, as far as it can.
struct Awaited {
  const Exchange* exchange = nullptr;
  std::vector<std::string> arrays;
  std::vector<Coming> coming;
};
// Of these arrays, which stand under their names with what the device has
// itself. The frame must outlive what it gives.
std::vector<Awaited> send_arrays(Writer& w, const ShardFrame& frame,
                                 std::span<const std::string_view> arrays);
// Receives them, for came_parts. A barrier puts them behind `made`, and gives
// the values of that which to go on with: without it a compiler may wait for
// tiles before it makes anything.
std::vector<Value> await_tiles(Writer& w, const std::vector<Awaited>& awaited,
                               const std::vector<Value>& made);

// Of an array of tokens, within a program: what each op brought, once it is
// awaited, and all of it behind what the device has itself, which stands under
// the array's name.
bool comes(const ShardFrame& frame, std::string_view array);
std::vector<int64_t> came_tokens(const ShardFrame& frame,
                                 std::string_view array);
std::vector<Value> came_parts(Writer& w, const ShardFrame& frame,
                              std::string_view array);
// What came before and was kept.
void bind_came_parts(Writer& w, std::string_view array,
                     std::span<const Value> parts);
Value all_tiles(Writer& w, const ShardFrame& frame, std::string_view array);
// From here on all stand under the names.
void bind_all_tiles(Writer& w, const ShardFrame& frame);

// What was made of tokens, each under the name of its array: what is others'
// goes home, of queries into its place, of keys to be added. In their order.
std::vector<Value> bring_home(Writer& w, const ShardFrame& frame,
                              std::span<const std::string_view> arrays,
                              const std::vector<Made>& made);

// The program: `attend` runs once tiles are on their way, and gives the results
// in their order.
using Attend =
    std::function<std::vector<Made>(Writer&, const std::vector<Awaited>&)>;
std::string frame_program(std::string_view name, const ShardFrame& frame,
                          const ShardArrays& arrays, const Attend& attend);

// Every argument and result as the text has it: "all_q", "result 0"; the whole
// array, and the axes that split it.
std::vector<ArraySpec> frame_specs(const ShardFrame& frame,
                                   const ShardArrays& arrays);
// The same under the names that the arrays have for us.
ShardProgramArrays program_arrays(const ShardFrame& frame,
                                  const ShardArrays& arrays);

}  // namespace tessera::xla
