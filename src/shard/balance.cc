// shard/balance.cc: the two families that balance exact work: one moves rows
// with their owner, the other only moves tasks.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "shard/loads.h"
#include "shard/place.h"

namespace tessera::shard {
namespace {

// The traffic of an assignment, as a fraction of an all-gather.
double traffic_of(const Loads& loads) {
  return loads.sent() + 2 * loads.needed();
}

// Keeps the best assignment: first one in which no shard has too many rows,
// then the lowest weighted sum of excess over the limits and traffic.
class Best {
 public:
  void look_at(const Loads& loads) {
    const Problem& p = loads.problem();
    double over = 0;
    bool crowded = false;
    for (int32_t s = 0; s < p.shards; ++s) {
      over += loads.over(s);
      crowded |= !p.tasks && loads.rows(s) > p.row_cap;
    }
    const std::pair cost(crowded, 100 * over + traffic_of(loads));
    if (!row_shards_.empty() && cost >= cost_) return;
    row_shards_ = loads.row_shards();
    cost_ = cost;
    over_ = over;
  }
  bool is_within() const { return over_ == 0; }
  RowShards row_shards() { return std::move(row_shards_); }

 private:
  RowShards row_shards_;
  std::pair<bool, double> cost_;
  double over_ = 0;
};

// For a small batch there is time to repair all starts and to try more
// candidates; else only the start that sends least is repaired.
bool is_small(const Problem& p) {
  constexpr int64_t kSmall = 1 << 14;
  return p.rows() * p.shards <= kSmall;
}

std::vector<PlaceOptions> starts_of(const Problem& p) {
  // If the mean is a bucket, chunks are slightly smaller than a bucket, since
  // neighbours share a tile at their border.
  struct Start {
    double chunk, fill;  // fractions of the mean rows and work
  };
  std::vector<Start> starts = {{0.18, 0.85}, {0.16, 0.85}};
  if (is_small(p)) {
    starts = {{0.36, 0.85}, {0.36, 1.0},  {0.49, 0.75}, {0.49, 0.85},
              {0.49, 0.95}, {0.74, 0.95}, {0.74, 1.0},  {1, 1.0}};
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
  // Each step examines all pairs of shards a few times.
  constexpr int64_t kPairs = int64_t{1} << 26;
  RepairOptions out;
  out.steps = std::min(8 * p.shards, kPairs / (p.shards * p.shards) / 12 + 1);
  if (is_small(p)) {
    out.tried = 32;
    out.lightest = 16;
  } else {
    out.lightest = p.tasks ? 16 : 2;
  }
  return out;
}

}  // namespace

RowShards even_rows(const Problem& p) {
  if (p.shards == 1 || p.rows() == 0) return contiguous_rows(p);
  const std::vector<Piece> pieces = pieces_of(p);
  const RepairOptions options = repair_options(p);
  const std::vector<PlaceOptions> starts = starts_of(p);
  Best best;
  std::optional<Loads> first;
  for (const PlaceOptions& start : starts) {
    RowShards row_shards = place_pieces(p, pieces, start);
    exchange_pieces(p, pieces, row_shards);
    Loads loads(p, std::move(row_shards));
    if (is_small(p)) {
      repair(loads, options);
      best.look_at(loads);
    } else if (!first || traffic_of(loads) < traffic_of(*first)) {
      first.emplace(std::move(loads));
    }
  }
  if (first) {
    repair(*first, options);
    best.look_at(*first);
  }
  // The steps may have put too many rows on a shard to even the work. The
  // alternatives below are even for few rows on many shards.
  if (!best.is_within()) {
    PlaceOptions dealt = starts[0];
    dealt.deals = true;
    for (RowShards row_shards : {place_pieces(p, pieces, dealt),
                                 headtail_rows(p), contiguous_rows(p)}) {
      Loads loads(p, std::move(row_shards));
      best.look_at(loads);
      repair(loads, options);
      best.look_at(loads);
    }
  }
  return best.row_shards();
}

RowShards even_tasks(const Problem& p) {
  if (p.shards == 1 || p.rows() == 0) return contiguous_rows(p);
  // Takes the cheapest steps first, then any that are needed.
  constexpr double kLast = 4;
  std::vector<double> starts = {0.25};
  if (is_small(p)) starts = {0.5, 1, 2};
  Best best;
  for (const double start : starts) {
    Loads loads(p, contiguous_rows(p));
    RepairOptions options = repair_options(p);
    for (options.over = start; options.over <= kLast; options.over *= 2) {
      repair(loads, options);
    }
    best.look_at(loads);
  }
  return best.row_shards();
}

}  // namespace tessera::shard
