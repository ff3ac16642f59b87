// shard/place.h: the steps that move rows, for the row and task families.
#pragma once

#include <cstdint>
#include <vector>

#include "shard/loads.h"
#include "shard/problem.h"

namespace tessera::shard {

struct PlaceOptions {
  // The most rows of a document on one shard, unless it is there whole.
  int64_t chunk = 1;
  double fill = 0.8;  // share of the mean work, used for the first attempt
  // If true, rows that do not fit on the ring are dealt to the lightest shards,
  // so that no shard exceeds its rows. If false, they stay together on one
  // shard: a later repair may fix that with less traffic.
  bool deals = false;
};

// Places documents in descending order of work, each where it costs least. A
// document stays whole if it fits; else it is cut into chunks for consecutive
// shards of the ring, so that all long documents share a few shifts.
// PlaceOptions::deals decides about rows that do not fit.
RowShards place_pieces(const Problem& p, std::vector<Piece> pieces,
                       const PlaceOptions& options);

// Evens work and rows by moving and swapping whole documents (low traffic).
void exchange_pieces(const Problem& p, const std::vector<Piece>& pieces,
                     RowShards& row_shards);

// Moves and swaps parts of runs of rows until no shard exceeds its limits. Of
// the steps that help most, takes the one that adds least traffic.
struct RepairOptions {
  int64_t steps = 0;    // maximum number of steps
  size_t tried = 12;    // candidates of a step whose traffic is counted exactly
  size_t lightest = 4;  // light shards tried, beside the neighbours
  double over = 2;      // weight of exceeding a limit against traffic
};
void repair(Loads& loads, const RepairOptions& options);

}  // namespace tessera::shard
