// lanes/xla/exchange.h: tiles on their way between the devices of a mesh, as
// ops: there before the work, and back after it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "lanes/xla/writer.h"
#include "tessera/shard.h"

namespace tessera::xla {

// One Traffic of shards. The argument `sends` has the sender's tiles, round
// after round, and `own` where a round has room and no tile. A ragged exchange
// is told by `slices` too where what goes to each device begins, and how much
// that is: [away, back] x [begin, tiles] x each device along "seq".
struct Exchange {
  std::string_view sends, slices;
  int64_t own = 0;  // tiles that a device owns
  int64_t tokens = 0;
  std::vector<Round> rounds;
  std::vector<Writer::Hops> hops;  // of each round; none of a ragged one
  Writer::Groups groups;           // of a ragged exchange, else none

  bool ragged() const { return !groups.empty(); }
  int64_t room() const;  // for tiles of all rounds
  int64_t tiles() const { return own + room(); }
};
// Of query tiles, or of key tiles.
Exchange exchange_of(const Shards& shards, bool queries);

// Of a device's own tokens (dimension 2), what the rounds bring; there must be
// room for some.
Value bring_tiles(Writer& w, const Exchange& e, const Value& own);

// What was made of tokens: of all, own ones first; or of those that came apart.
struct Made {
  Value own;
  std::optional<Value> came = {};
};
// The other way: what was done for others goes home, and stands in its own
// place there, or is added to what is there.
enum class Homecoming : uint8_t { in_place, added };
Value return_tiles(Writer& w, const Exchange& e, const Made& made,
                   Homecoming how);

}  // namespace tessera::xla
