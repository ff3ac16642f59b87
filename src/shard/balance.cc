// shard/balance.cc: the two families that even exact work: rows that lie where
// that is, and tasks that move there.
#include <algorithm>

#include "shard/loads.h"
#include "shard/place.h"

namespace tessera::shard {
namespace {

// What is compared: first the limits, then what is sent and needed.
double cost_of(const Loads& loads, int64_t shards) {
  double over = 0;
  for (int32_t s = 0; s < shards; ++s) over += loads.over(s);
  return 100 * over + loads.sent() + 2 * loads.needed();
}

// Where a batch is small there is time for several starts and wider looks.
bool is_small(const Problem& p) {
  constexpr int64_t kSmall = 1 << 14;
  return p.rows() * p.shards <= kSmall;
}

std::vector<PlaceOptions> starts_of(const Problem& p) {
  struct Start {
    double chunk, fill;  // of the mean rows and work
  };
  std::vector<Start> starts = {{0.2, 0.85}};
  if (is_small(p)) {
    starts = {{0.375, 0.85}, {0.375, 1.0}, {0.5, 0.75}, {0.5, 0.85},
              {0.5, 0.95},   {0.75, 0.95}, {0.75, 1.0}, {1, 1.0}};
  }
  std::vector<PlaceOptions> out;
  out.reserve(starts.size());
  for (const Start& s : starts) {
    out.push_back(
        {std::max<int64_t>(1, static_cast<int64_t>(p.mean_rows() * s.chunk)),
         s.fill});
  }
  return out;
}

RepairOptions repair_options(const Problem& p) {
  // Each step looks at all pairs of shards a few times.
  constexpr int64_t kPairs = int64_t{1} << 26;
  RepairOptions out;
  out.steps = std::min(8 * p.shards, kPairs / (p.shards * p.shards) / 12 + 1);
  if (is_small(p)) {
    out.tried = 32;
    out.lightest = 16;
  }
  return out;
}

}  // namespace

Homes even_rows(const Problem& p) {
  if (p.shards == 1 || p.rows() == 0) return contiguous_homes(p);
  const std::vector<Piece> pieces = pieces_of(p);
  const RepairOptions options = repair_options(p);
  Homes best;
  double least = 0;
  for (const PlaceOptions& start : starts_of(p)) {
    Homes homes = place_pieces(p, pieces, start);
    exchange_pieces(p, pieces, homes);
    Loads loads(p, std::move(homes));
    repair(loads, options);
    const double cost = cost_of(loads, p.shards);
    if (best.empty() || cost < least) {
      least = cost;
      best = loads.homes();
    }
  }
  return best;
}

Homes even_tasks(const Problem& p) {
  if (p.shards == 1 || p.rows() == 0) return contiguous_homes(p);
  Loads loads(p, contiguous_homes(p));
  repair(loads, repair_options(p));
  return loads.homes();
}

}  // namespace tessera::shard
