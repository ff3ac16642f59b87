// lanes/xla/exchange.h: ops that move tiles between the devices of a mesh: to
// the devices that need them before the work, and back after it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "lanes/xla/writer.h"
#include "tessera/shard.h"

namespace tessera::xla {

// One Traffic of shards. The argument `sends` has the tile numbers that a
// device sends, round after round; an unused slot of a round has the number
// `own`. A ragged exchange also reads `slices`, where the tiles for each device
// begin and how many there are: [away, back] x [begin, tiles] x device along
// "seq". A gather brings all tiles; `sends` then has those that are used.
struct Exchange {
  std::string_view sends, slices;
  int64_t own = 0;  // tiles that a device owns
  int64_t tokens = 0;
  std::vector<Round> rounds;
  TileExchange kind = TileExchange::rounds;
  std::vector<Writer::Hops> hops = {};  // one for each round; empty for one op
  Writer::Groups groups = {};           // for one op; else empty

  bool ragged() const { return kind == TileExchange::ragged; }
  bool gathers() const { return kind == TileExchange::gather; }
  bool is_one_op() const { return ragged() || gathers(); }
  int64_t max_received() const;  // tiles of all rounds
  // The number of tokens that each op brings.
  std::vector<int64_t> came_tokens() const;
  int64_t tiles() const { return own + max_received(); }
};
// The exchange of query tiles, or of key tiles.
Exchange exchange_of(const Shards& shards, bool queries);

// Tiles in flight, of arrays that share the same ops.
struct Coming {
  struct Part {
    size_t array = 0;  // index in send_tiles' `own`
    int64_t heads = 0;
  };
  std::vector<Part> parts;     // along dimension 1
  std::vector<Value> buffers;  // one for each op
};
// Sends tiles of the arrays `own`, whose dimension 2 are the device's own
// tokens. In a ragged exchange, arrays that differ only in heads share one op,
// since a second op would start only when the first has ended.
std::vector<Coming> send_tiles(Writer& w, const Exchange& e,
                               const std::vector<Value>& own);
// The tiles that arrived: of each part, one array for each op.
std::vector<std::vector<Value>> receive_tiles(Writer& w, const Exchange& e,
                                              const Coming& coming);

// Results for tokens. If `came` is empty, `own` is for all tokens, own tokens
// first. Otherwise `came` is for received tokens, in one array or one per op.
struct Made {
  Value own;
  std::vector<Value> came = {};
};
// Returns the results for received tokens to the devices that own them, by as
// few ops. There they are put in their places, or added to the owner's.
enum class Homecoming : uint8_t { in_place, added };
std::vector<Value> return_tiles(Writer& w, const Exchange& e,
                                const std::vector<Made>& made, Homecoming how);

}  // namespace tessera::xla
