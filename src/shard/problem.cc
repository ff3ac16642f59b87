// shard/problem.cc: turns a plan's lists into work and needed columns of rows.
#include "shard/problem.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/integers.h"

namespace tessera::shard {
namespace {

// A batch row: its index in the plan and in the group.
struct At {
  int64_t batch_row, local;
};

// Adds the columns that the unit's rows need in any list; returns their work.
int64_t add_lists(const Plan& plan, const ShardOptions& options, const At& at,
                  int64_t unit, Problem& p) {
  const Worklist& w = plan.forward;
  const int64_t end = std::min((unit + 1) * p.tiles_q, w.rows);
  const auto base = static_cast<uint32_t>(at.local * p.column_units);
  const auto width = static_cast<uint32_t>(p.tiles_kv);
  int64_t work = 0;
  for (int64_t h = 0; h < plan.heads; ++h) {
    const int64_t list = plan.list(at.batch_row, h);
    for (int64_t r = unit * p.tiles_q; r < end; ++r) {
      const std::span<const Entry> row = w.row(list, r);
      if (row.empty()) work += options.work.partial;
      for (const Entry& e : row) {
        work += options.work.of(e.tile_class());
        const uint32_t tile = e.word >> 2;
        p.column.push_back(base + (width == 1 ? tile : tile / width));
      }
    }
  }
  return work;
}

// Adds the unit's columns of all plans, without repeats; returns the work.
int64_t add_unit(Plans plans, const ShardOptions& options, const At& at,
                 int64_t unit, Problem& p) {
  const auto first = static_cast<std::ptrdiff_t>(p.column.size());
  int64_t work = 0;
  for (const Plan* plan : plans) {
    work += add_lists(*plan, options, at, unit, p);
  }
  const bool plain = plans.size() == 1 && plans.front()->heads == 1 &&
                     p.tiles_q == 1 && p.tiles_kv == 1;
  if (!plain) {
    const auto begin = p.column.begin() + first;
    std::sort(begin, p.column.end());
    p.column.erase(std::unique(begin, p.column.end()), p.column.end());
  }
  return work;
}

// The cost of a cut before each row is the number of columns on one side that
// rows of the other side need. A document that does not begin at a tile
// boundary costs one more than the cheapest cut, and is still a natural cut.
void find_cuts(Problem& p) {
  const auto n = static_cast<size_t>(p.rows());
  p.joined.assign(n, 0);
  if (n == 0) return;
  std::vector<int32_t> change(n + 1, 0);
  // The first and the last row that need column c. A column's tokens give its
  // position among the rows.
  const auto columns = static_cast<size_t>(p.columns());
  std::vector<int64_t> first(columns, -1);
  std::vector<int64_t> last(columns, -1);
  for (int64_t r = 0; r < p.rows(); ++r) {
    for (const uint32_t c : p.needs(r)) {
      if (first[c] < 0) first[c] = r;
      last[c] = r;
    }
  }
  for (size_t c = 0; c < columns; ++c) {
    if (first[c] < 0) continue;
    const auto at = static_cast<int64_t>(c);
    const int64_t own = at / p.column_units * p.units +
                        at % p.column_units * p.units / p.column_units;
    const int64_t low = std::min(own, first[c]);
    const int64_t high = std::max(own, last[c]);
    ++change[static_cast<size_t>(low) + 1];
    if (high + 1 < p.rows()) --change[static_cast<size_t>(high) + 1];
  }
  std::vector<int32_t> cut(n, 0);
  int32_t sum = 0;
  int32_t least = INT32_MAX;
  for (size_t r = 1; r < n; ++r) {
    sum += change[r];
    cut[r] = sum;
    least = std::min(least, sum);
  }
  for (size_t r = 1; r < n; ++r) p.joined[r] = cut[r] > least + 1 ? 1 : 0;
}

}  // namespace

TileBytes tile_bytes(const ShardOptions& options, const Tile& tile,
                     int64_t heads, int64_t kv_heads) {
  const AttentionShape& s = options.shape;
  const int64_t item = byte_width(options.dtype);
  return {kv_heads * tile.kv * (s.head_dim + s.v_head_dim) * item,
          heads * tile.q * s.head_dim * item,
          heads * tile.q * (s.v_head_dim * item + byte_width(Dtype::f32))};
}

Problem make_problem(const Request& request, Plans plans,
                     const ShardOptions& options, int64_t shards,
                     int64_t first_batch_row, int64_t batch_rows) {
  const Plan& plan = *plans.front();
  Problem p;
  p.shards = shards;
  p.batch_rows = batch_rows;
  p.ragged = options.exchange == TileExchange::ragged;
  p.tasks = options.balance == Balance::tasks;
  p.tied = request.q_len == request.kv_len;
  if (p.tied) {
    const int64_t common = std::lcm(plan.tile.q, plan.tile.kv);
    p.tiles_q = common / plan.tile.q;
    p.tiles_kv = common / plan.tile.kv;
  }
  p.units = ceil_div(plan.forward.rows, p.tiles_q);
  p.column_units = ceil_div(plan.forward.columns, p.tiles_kv);
  p.start.reserve(static_cast<size_t>(batch_rows * p.units) + 1);
  p.before.reserve(static_cast<size_t>(batch_rows * p.units) + 1);
  size_t entries = 0;
  for (const Plan* each : plans) entries += each->forward.entries.size();
  p.column.reserve(entries);
  p.start.push_back(0);
  p.before.push_back(0);
  for (int64_t b = 0; b < batch_rows; ++b) {
    for (int64_t u = 0; u < p.units; ++u) {
      const int64_t work =
          add_unit(plans, options, {first_batch_row + b, b}, u, p);
      p.start.push_back(static_cast<uint32_t>(p.column.size()));
      p.before.push_back(p.before.back() + work);
    }
  }
  find_cuts(p);
  const TileBytes bytes = tile_bytes(options, plan.tile, options.shape.heads,
                                     options.shape.kv_heads);
  p.kv_bytes = bytes.kv * p.tiles_kv;
  p.row_bytes = (bytes.q + bytes.out) * p.tiles_q;
  // Slightly below the requested evenness, so that rounding does not exceed it.
  p.work_cap = (options.evenness.work - 0.002) * p.mean_work();
  p.row_cap = std::max(static_cast<int64_t>(std::floor(
                           options.evenness.tokens * p.mean_rows() + 1e-9)),
                       ceil_div(p.rows(), shards));
  return p;
}

std::vector<Piece> pieces_of(const Problem& p) {
  std::vector<Piece> out;
  for (int64_t r = 0; r < p.rows(); ++r) {
    if (r > 0 && p.joined[static_cast<size_t>(r)]) {
      out.back().end = r + 1;
    } else {
      out.push_back({r, r + 1});
    }
  }
  return out;
}

RowShards contiguous_rows(const Problem& p) {
  RowShards out(static_cast<size_t>(p.rows()));
  for (size_t r = 0; r < out.size(); ++r) {
    const int64_t unit = static_cast<int64_t>(r) % p.units;
    out[r] = static_cast<int32_t>(unit * p.shards / p.units);
  }
  return out;
}

RowShards headtail_rows(const Problem& p) {
  RowShards out(static_cast<size_t>(p.rows()));
  for (size_t r = 0; r < out.size(); ++r) {
    const int64_t unit = static_cast<int64_t>(r) % p.units;
    const int64_t chunk = unit * 2 * p.shards / p.units;
    out[r] = static_cast<int32_t>(std::min(chunk, 2 * p.shards - 1 - chunk));
  }
  return out;
}

}  // namespace tessera::shard
