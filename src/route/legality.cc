// route/legality.cc: checks every pick against the keys that its query may see.
#include "route/legality.h"

#include <algorithm>

#include "base/fail.h"
#include "base/integers.h"
#include "route/tasks.h"

namespace tessera::routing {
namespace {

constexpr int64_t kQueriesPerTask = 256;

// Whether any valid key lies in the block.
bool has_key(const RouteRow& row, int64_t block, int64_t size) {
  const int64_t begin = block * size;
  const size_t run = row.run_from(begin);
  return run < row.runs.size() && row.runs[run].begin < begin + size;
}

// The first entry whose block is not below `block`.
std::span<const BlockOfDocument>::iterator find_block(
    std::span<const BlockOfDocument> blocks, int32_t block) {
  // Blocks ascend, and most documents have keys in every block of their range.
  const int64_t at = blocks.empty() ? -1 : int64_t{block} - blocks[0].block;
  if (at >= 0 && at < static_cast<int64_t>(blocks.size()) &&
      blocks[static_cast<size_t>(at)].block == block) {
    return blocks.begin() + at;
  }
  return std::lower_bound(
      blocks.begin(), blocks.end(), block,
      [](const BlockOfDocument& b, int32_t n) { return b.block < n; });
}

// The fault of a pick; nothing if the pick is legal.
std::optional<Illegal> fault_of(const RouteRow& row, int64_t query,
                                int32_t block, const PickSizes& sizes) {
  const int32_t document = row.query_document[static_cast<size_t>(query)];
  if (document < 0 || block >= sizes.blocks()) return Illegal::invalid;
  const auto blocks = row.blocks_of(document);
  const auto it = find_block(blocks, block);
  if (it == blocks.end() || it->block != block) {
    return has_key(row, block, sizes.block) ? Illegal::documents
                                            : Illegal::invalid;
  }
  if (it->first > query + row.q_offset) return Illegal::future;
  return {};
}

}  // namespace

Result<void> check_picks(const Picks& p, const PickSizes& s,
                         std::string_view what, std::string_view of) {
  if (p.heads < 1 || p.heads > kMaxBatch || p.k < 1 || p.k > kMaxTokens) {
    return invalid("route",
                   "{} must have heads and slots of 1 or more, found heads {} "
                   "and slots {}",
                   what, p.heads, p.k);
  }
  int64_t want = 0;
  if (__builtin_mul_overflow(s.batch * p.heads, s.q_len, &want) ||
      __builtin_mul_overflow(want, p.k, &want) ||
      want != static_cast<int64_t>(p.blocks.size())) {
    return invalid("route", "{} must hold [{}, {}, {}, {}] values, found {}",
                   what, s.batch, p.heads, s.q_len, p.k, p.blocks.size());
  }
  const auto k = static_cast<size_t>(p.k);
  for (size_t at = 0; at < p.blocks.size(); at += k) {
    const auto row = static_cast<int64_t>(at / k);
    const auto where = [&] {
      return fmt::format("{} {} of batch row {}, head {}", of, row % s.q_len,
                         row / s.q_len / p.heads, row / s.q_len % p.heads);
    };
    int32_t before = -1;
    for (const int32_t block : p.blocks.subspan(at, k)) {
      if (block < -1 || block >= s.blocks()) {
        return invalid("route", "{} must be from -1 to {}, found {} for {}",
                       what, s.blocks() - 1, block, where());
      }
      if (block < 0) continue;
      if (block == before) {
        return invalid("route", "{} must differ, found {} twice for {}", what,
                       block, where());
      }
      if (block < before) {
        return invalid("route", "{} must ascend, found {} after {} for {}",
                       what, block, before, where());
      }
      before = block;
    }
  }
  return {};
}

Removed remove_illegal(const std::vector<RouteRow>& rows, const PickSizes& s,
                       int threads, std::vector<int32_t>& picks) {
  const int64_t per_list = ceil_div(s.q_len, kQueriesPerTask);
  const int64_t tasks = s.batch * s.heads * per_list;
  std::vector<Removed> removed(static_cast<size_t>(tasks));
  const auto work = [&](int64_t task, int) {
    Removed& out = removed[static_cast<size_t>(task)];
    const int64_t list = task / per_list;
    const int64_t b = list / s.heads;
    const RouteRow& row = rows[static_cast<size_t>(b)];
    const int64_t begin = task % per_list * kQueriesPerTask;
    const int64_t end = std::min(s.q_len, begin + kQueriesPerTask);
    for (int64_t q = begin; q < end; ++q) {
      int32_t* of = picks.data() + (list * s.q_len + q) * s.k;
      int64_t kept = 0;
      for (int64_t i = 0; i < s.k; ++i) {
        const int32_t block = of[i];
        if (block < 0) continue;
        const auto fault = fault_of(row, q, block, s);
        if (!fault) {
          of[kept++] = block;
          continue;
        }
        ++out.count[static_cast<size_t>(*fault)];
        if (!out.first) {
          out.first = {*fault, b, list % s.heads, q, block};
        }
      }
      std::fill(of + kept, of + s.k, -1);
    }
  };
  run_tasks(tasks, threads, work, "legality");
  Removed all;
  for (const Removed& r : removed) {
    for (size_t i = 0; i < 3; ++i) all.count[i] += r.count[i];
    if (!all.first) all.first = r.first;
  }
  return all;
}

Removed illegal_tile_picks(const std::vector<RouteRow>& rows,
                           const PickSizes& s, int64_t query_tile,
                           const Picks& picks) {
  Removed out;
  const int64_t tiles = ceil_div(s.q_len, query_tile);
  const auto k = static_cast<size_t>(picks.k);
  for (size_t at = 0; at < picks.blocks.size(); ++at) {
    const int32_t block = picks.blocks[at];
    if (block < 0) continue;
    const auto of = static_cast<int64_t>(at / k);
    const int64_t tile = of % tiles;
    const int64_t list = of / tiles;
    const int64_t b = list / s.heads;
    const int64_t begin = tile * query_tile;
    // The last queries see most; one that sees no key decides nothing.
    auto why = Illegal::invalid;
    bool followed = false;
    for (int64_t q = std::min(s.q_len, begin + query_tile);
         !followed && q-- > begin;) {
      const auto fault = fault_of(rows[static_cast<size_t>(b)], q, block, s);
      followed = !fault;
      if (fault && why == Illegal::invalid) why = *fault;
    }
    if (followed) continue;
    ++out.count[static_cast<size_t>(why)];
    if (!out.first) out.first = {why, b, list % s.heads, tile, block};
  }
  return out;
}

Error illegal_pick(const Removed::Pick& p, std::string_view of) {
  constexpr std::string_view kRules[] = {
      "a pick must hold a valid key for a query that sees keys",
      "a pick must hold a key of the query's document",
      "a pick must not be from the future"};
  return invalid("route",
                 "{}, found block {} for {} {} of batch row {}, head {}",
                 kRules[static_cast<size_t>(p.why)], p.block, of, p.query,
                 p.batch_row, p.head);
}

Result<void> check_pick_heads(int64_t found, int64_t kv_heads, int64_t heads) {
  if (found == 1 || found == kv_heads || found == heads) return {};
  return invalid("route",
                 "picks must be of 1 head, the {} KV heads or the {} query "
                 "heads, found {} heads",
                 kv_heads, heads, found);
}

}  // namespace tessera::routing
