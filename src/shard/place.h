// shard/place.h: steps of the families that move rows.
#pragma once

#include <cstdint>
#include <vector>

#include "shard/loads.h"
#include "shard/problem.h"

namespace tessera::shard {

struct PlaceOptions {
  // Rows of a document that one shard takes at most, unless it takes it whole.
  int64_t chunk = 1;
  double fill = 0.8;  // of the mean work, before later pieces fill up
  // What finds no place on the ring is dealt to the lightest, so that no shard
  // gets more rows than it may have. Else it stays together, which may be put
  // right later, and then needs less.
  bool deals = false;
};

// Documents in falling order of work, each where it costs least: whole if it
// fits, else cut into chunks for shards that follow each other on the ring, so
// that all long documents share a few shifts. What finds no place there is
// dealt to the lightest. No shard gets more rows than it may have.
RowShards place_pieces(const Problem& p, std::vector<Piece> pieces,
                       const PlaceOptions& options);

// Evens work and rows by moving and swapping whole documents, which costs
// hardly any traffic.
void exchange_pieces(const Problem& p, const std::vector<Piece>& pieces,
                     RowShards& row_shards);

// Moves and swaps parts of runs of rows until no shard is over its limits,
// always by the step that adds least traffic among those that help most.
struct RepairOptions {
  int64_t steps = 0;    // at most
  size_t tried = 12;    // whose traffic is counted exactly, of each step
  size_t lightest = 4;  // shards that rows may go to, beside the neighbours
  double over = 2;      // what being over a limit weighs beside traffic
};
void repair(Loads& loads, const RepairOptions& options);

}  // namespace tessera::shard
