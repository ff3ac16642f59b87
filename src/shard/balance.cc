// shard/balance.cc: the two families that even exact work: rows that lie where
// that is, and tasks that move there.
#include <algorithm>
#include <utility>
#include <vector>

#include "shard/loads.h"
#include "shard/place.h"

namespace tessera::shard {
namespace {

// The best of some ways. First no shard may have too many rows; then limits are
// compared, then what is sent and needed.
class Best {
 public:
  void look_at(const Loads& loads) {
    const Problem& p = loads.problem();
    double over = 0;
    bool crowded = false;
    for (int32_t s = 0; s < p.shards; ++s) {
      over += loads.over(s);
      crowded |= loads.rows(s) > p.row_cap;
    }
    const std::pair cost(crowded,
                         100 * over + loads.sent() + 2 * loads.needed());
    if (!homes_.empty() && cost >= cost_) return;
    homes_ = loads.homes();
    cost_ = cost;
    over_ = over;
  }
  bool is_within() const { return over_ == 0; }
  Homes homes() { return std::move(homes_); }

 private:
  Homes homes_;
  std::pair<bool, double> cost_;
  double over_ = 0;
};

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
  const std::vector<PlaceOptions> starts = starts_of(p);
  Best best;
  for (const PlaceOptions& start : starts) {
    Homes homes = place_pieces(p, pieces, start);
    exchange_pieces(p, pieces, homes);
    Loads loads(p, std::move(homes));
    repair(loads, options);
    best.look_at(loads);
  }
  // Steps may have crowded a shard to even work; what others do is even where
  // there are few rows for many shards.
  if (!best.is_within()) {
    PlaceOptions dealt = starts[0];
    dealt.deals = true;
    for (Homes homes : {place_pieces(p, pieces, dealt), headtail_homes(p),
                        contiguous_homes(p)}) {
      Loads loads(p, std::move(homes));
      best.look_at(loads);
      repair(loads, options);
      best.look_at(loads);
    }
  }
  return best.homes();
}

Homes even_tasks(const Problem& p) {
  if (p.shards == 1 || p.rows() == 0) return contiguous_homes(p);
  Loads loads(p, contiguous_homes(p));
  repair(loads, repair_options(p));
  return loads.homes();
}

}  // namespace tessera::shard
