// shard/groups.cc: the tiles that each shard needs from each other one, and the
// rounds that bring them.
#include "shard/groups.h"

#include <algorithm>

#include "base/fail.h"
#include "tessera/batch.h"

namespace tessera::shard {

Owners make_owners(const Problem& p, const Plan& plan,
                   const RowShards& computes, int64_t first_batch_row) {
  Owners o;
  o.first_batch_row = first_batch_row;
  o.batch_rows = p.batch_rows;
  o.rows = plan.forward.rows;
  o.columns = plan.forward.columns;
  const RowShards owns = p.tasks ? contiguous_rows(p) : computes;
  for (int64_t b = 0; b < p.batch_rows; ++b) {
    for (int64_t r = 0; r < o.rows; ++r) {
      const auto unit = static_cast<size_t>(b * p.units + r / p.tiles_q);
      o.row.push_back(owns[unit]);
      o.computes.push_back(computes[unit]);
    }
    for (int64_t c = 0; c < o.columns; ++c) {
      const int64_t unit = c / p.tiles_kv;
      o.column.push_back(
          p.tied ? owns[static_cast<size_t>(b * p.units + unit)]
                 : static_cast<int32_t>(unit * p.shards / p.column_units));
    }
  }
  return o;
}

void find_pairs(const Plan& plan, int64_t seq, Group& group) {
  const Owners& o = *group.owners;
  const auto n = static_cast<size_t>(seq);
  group.kv.assign(n * n, {});
  group.q.assign(n * n, {});
  if (group.lists == 0) return;
  const auto columns = static_cast<size_t>(o.batch_rows * o.columns);
  std::vector<uint8_t> needed(n * columns, 0);
  for (int64_t b = 0; b < o.batch_rows; ++b) {
    for (int64_t l = 0; l < group.lists; ++l) {
      const int64_t list =
          plan.list(o.first_batch_row + b, group.first_list + l);
      for (int64_t r = 0; r < o.rows; ++r) {
        const auto s = static_cast<size_t>(
            o.computes[static_cast<size_t>(b * o.rows + r)]);
        uint8_t* const at =
            needed.data() + s * columns + static_cast<size_t>(b * o.columns);
        for (const Entry& e : plan.forward.row(list, r)) at[e.word >> 2] = 1;
      }
    }
  }
  for (size_t s = 0; s < n; ++s) {
    const uint8_t* const at = needed.data() + s * columns;
    for (size_t c = 0; c < columns; ++c) {
      const auto from = static_cast<size_t>(o.column[c]);
      if (at[c] == 0 || from == s) continue;
      group.kv[from * n + s].push_back(static_cast<int32_t>(c));
    }
  }
  for (size_t r = 0; r < o.row.size(); ++r) {
    const auto from = static_cast<size_t>(o.row[r]);
    const auto to = static_cast<size_t>(o.computes[r]);
    if (from != to) group.q[from * n + to].push_back(static_cast<int32_t>(r));
  }
}

Result<std::vector<Round>> make_rounds(const std::vector<const Pairs*>& groups,
                                       int64_t seq, int64_t owned,
                                       std::string_view what,
                                       const std::vector<int64_t>& ceilings) {
  if (!ceilings.empty() && static_cast<int64_t>(ceilings.size()) != seq - 1) {
    return invalid("shard",
                   "{} must have a ceiling for each of {} shifts, found {}",
                   what, seq - 1, ceilings.size());
  }
  std::vector<Round> rounds;
  for (int64_t shift = 1; shift < seq; ++shift) {
    int64_t most = 0;
    for (const Pairs* pairs : groups) {
      for (int64_t from = 0; from < seq; ++from) {
        const int64_t to = (from + shift) % seq;
        const auto& tiles = (*pairs)[static_cast<size_t>(from * seq + to)];
        most = std::max(most, static_cast<int64_t>(tiles.size()));
      }
    }
    int64_t capacity = std::min(bucket(most), owned);
    if (!ceilings.empty()) {
      capacity = ceilings[static_cast<size_t>(shift - 1)];
      if (capacity < 0 || capacity > kMaxTiles || most > capacity) {
        return over_limit(
            "shard", "a round of {} by shift {} may send {} tiles, found {}",
            what, shift, capacity, most);
      }
    }
    if (capacity > 0) rounds.push_back({shift, capacity});
  }
  return rounds;
}

TileExchange choose_exchange(TileExchange asked, int64_t own_columns,
                             int64_t seq, std::vector<Round>& rounds) {
  const int64_t all = (seq - 1) * own_columns;
  if (asked == TileExchange::automatic) {
    const bool no_less = all > 0 && came_tiles(rounds, false, seq) >= all;
    asked = no_less ? TileExchange::gather : TileExchange::rounds;
  }
  if (asked != TileExchange::gather) return asked;
  rounds.clear();
  for (int64_t shift = 1; shift < seq && own_columns > 0; ++shift) {
    rounds.push_back({shift, own_columns});
  }
  return asked;
}

int64_t came_tiles(const std::vector<Round>& rounds, bool gathered,
                   int64_t seq) {
  if (gathered) return rounds.empty() ? 0 : seq * rounds.front().capacity;
  int64_t out = 0;
  for (const Round& r : rounds) out += r.capacity;
  return out;
}

void add_sends(const Pairs& pairs, const std::vector<Round>& rounds,
               int64_t seq, const std::vector<std::vector<int32_t>>& local,
               Traffic& traffic) {
  for (int64_t from = 0; from < seq; ++from) {
    std::vector<std::vector<int32_t>> sends;
    sends.reserve(rounds.size());
    const std::vector<int32_t>& number = local[static_cast<size_t>(from)];
    for (const Round& round : rounds) {
      const int64_t to = (from + round.shift) % seq;
      std::vector<int32_t> tiles = pairs[static_cast<size_t>(from * seq + to)];
      for (int32_t& t : tiles) t = number[static_cast<size_t>(t)];
      sends.push_back(std::move(tiles));
    }
    traffic.send.push_back(std::move(sends));
  }
}

}  // namespace tessera::shard
