// lanes/xla/exchange.h: tiles on their way between the devices of a mesh, as
// ops: there before the work, and back after it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "lanes/xla/writer.h"
#include "tessera/shard.h"

namespace tessera::xla {

// One Traffic of shards. The argument `sends` has the sender's tiles, round
// after round, and `own` where a round has room and no tile. A ragged exchange
// is told by `slices` too where what goes to each device begins, and how much
// that is: [away, back] x [begin, tiles] x each device along "seq". A gather
// brings what each device owns, and `sends` has of it all that each needs.
struct Exchange {
  std::string_view sends, slices;
  int64_t own = 0;  // tiles that a device owns
  int64_t tokens = 0;
  std::vector<Round> rounds;
  TileExchange kind = TileExchange::rounds;
  std::vector<Writer::Hops> hops = {};  // of each round, else none
  Writer::Groups groups = {};           // where it is one op, else none

  bool ragged() const { return kind == TileExchange::ragged; }
  bool gathers() const { return kind == TileExchange::gather; }
  bool is_one_op() const { return ragged() || gathers(); }
  int64_t max_received() const;  // tiles, of all rounds
  // Of what comes: the tokens that each op brings.
  std::vector<int64_t> came_tokens() const;
  int64_t tiles() const { return own + max_received(); }
};
// Of query tiles, or of key tiles.
Exchange exchange_of(const Shards& shards, bool queries);

// Tiles on their way, of arrays that travel by the same ops.
struct Coming {
  struct Part {
    size_t array = 0;  // its number among those that were sent
    int64_t heads = 0;
  };
  std::vector<Part> parts;     // along dimension 1
  std::vector<Value> buffers;  // one an op
};
// Of each of these arrays a device's own tokens are dimension 2; there must be
// room for some. In a ragged exchange those that differ in heads alone go by
// one op, as the next would begin only where it ends.
std::vector<Coming> send_tiles(Writer& w, const Exchange& e,
                               const std::vector<Value>& own);
// What was brought of each part, by each op.
std::vector<std::vector<Value>> receive_tiles(Writer& w, const Exchange& e,
                                              const Coming& coming);

// What was made of tokens: of all, own ones first; or of those that came apart,
// all of them or those of each op.
struct Made {
  Value own;
  std::vector<Value> came = {};
};
// The other way, by as few ops: what was done for others goes home, and stands
// in its own place there, or is added to what is there.
enum class Homecoming : uint8_t { in_place, added };
std::vector<Value> return_tiles(Writer& w, const Exchange& e,
                                const std::vector<Made>& made, Homecoming how);

}  // namespace tessera::xla
