// lanes/xla/shard_frame.h: what all programs for the devices of a mesh share:
// the sharding of arrays, the exchange of tiles before attention, and the
// return of results to the devices that own their tokens.
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

// A device's part of an array, and the mesh axes that split the array. Integer
// arrays differ by device, so they begin with dimensions of 1 for "data",
// "head" and "seq".
struct ShardArray {
  Argument part;
  std::vector<std::string> axes;
  bool is_own = false;  // an integer array of each device
};
struct ShardArrays {
  std::vector<ShardArray> arguments, results;  // in the program's order
};

// Whether an array of tokens is of keys (k, v, dk, dv); all others: queries.
bool is_of_keys(std::string_view array);
// [1, heads, own tokens, ...]: the device's part before tiles arrive.
ShardArray own_part(const ShardFrame& frame, Argument a);
ShardArray own_integers(const ShardFrame& frame, std::string name, Dims dims);
// An integer array of one device, without the three leading dimensions of 1.
Argument of_device(const ShardArray& integers);
// [heads]; if the caller sums it over devices (`summed`), each device has
// [1, 1, heads].
ShardArray of_heads(const ShardFrame& frame, std::string name, int64_t heads,
                    bool summed);
// The integer arrays that exchanges read: the tiles each device sends, and the
// slices of a ragged exchange. They are the first arguments.
std::vector<ShardArray> exchange_arrays(const ShardFrame& frame);
// The values of a shard's exchange_arrays(), by name.
std::map<std::string_view, std::vector<int32_t>> exchange_integers(
    const ShardFrame& frame, const Shards& shards, size_t shard);

// Tiles in flight while a device computes what it can without them.
struct Awaited {
  const Exchange* exchange = nullptr;
  std::vector<std::string> arrays;
  std::vector<Coming> coming;
};
// Sends tiles of the arrays, whose names are bound to the device's own tokens.
// The frame must outlive the result.
std::vector<Awaited> send_arrays(Writer& w, const ShardFrame& frame,
                                 std::span<const std::string_view> arrays);
// Receives the tiles, for came_parts(). A barrier orders them after `made`, and
// the values returned replace `made`: without it a compiler may wait for tiles
// before it computes anything.
std::vector<Value> await_tiles(Writer& w, const std::vector<Awaited>& awaited,
                               const std::vector<Value>& made);

// For an array of tokens, within a program. comes(): whether tiles are
// received. came_parts(): what each op brought, after await_tiles().
// all_tiles(): the device's own tokens, bound to the array's name, then all
// that came.
bool comes(const ShardFrame& frame, std::string_view array);
std::vector<int64_t> came_tokens(const ShardFrame& frame,
                                 std::string_view array);
std::vector<Value> came_parts(Writer& w, const ShardFrame& frame,
                              std::string_view array);
// Binds parts that came earlier and were kept, for came_parts().
void bind_came_parts(Writer& w, std::string_view array,
                     std::span<const Value> parts);
Value all_tiles(Writer& w, const ShardFrame& frame, std::string_view array);
// Binds all_tiles() to the name of every array.
void bind_all_tiles(Writer& w, const ShardFrame& frame);

// Returns results for received tokens to their owners: those of queries are put
// in place, those of keys are added. The order is that of `arrays`.
std::vector<Value> bring_home(Writer& w, const ShardFrame& frame,
                              std::span<const std::string_view> arrays,
                              const std::vector<Made>& made);

// The text of the program. `attend` is called once tiles are in flight, and
// returns the results in order.
using Attend =
    std::function<std::vector<Made>(Writer&, const std::vector<Awaited>&)>;
std::string frame_program(std::string_view name, const ShardFrame& frame,
                          const ShardArrays& arrays, const Attend& attend);

// Every argument and result under its name in the text ("all_q", "result 0"):
// the shape of the whole array, and the axes that split it.
std::vector<ArraySpec> frame_specs(const ShardFrame& frame,
                                   const ShardArrays& arrays);
// The same under the names of ShardArrays.
ShardProgramArrays program_arrays(const ShardFrame& frame,
                                  const ShardArrays& arrays);

}  // namespace tessera::xla
