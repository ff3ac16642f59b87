// tests/sharded_pairs.cc: random shards, and a check over pairs of tokens.
#include <algorithm>

#include "tests/oracle.h"
#include "tests/sharded_run.h"

namespace tessera::testing {
namespace {

using Fault = std::optional<std::string>;

std::string words(std::initializer_list<std::string> parts) {
  std::string out;
  for (const std::string& p : parts) out += p;
  return out;
}
std::string n(int64_t x) { return std::to_string(x); }

size_t at(int64_t i) { return static_cast<size_t>(i); }

}  // namespace

std::string describe(const ShardedCase& c) {
  return words({describe(c.plan), " --mesh ", to_string(c.mesh), " --balance ",
                std::string(to_string(c.options.balance)), " --exchange ",
                std::string(to_string(c.options.exchange)), " heads ",
                n(c.options.shape.heads), " on ", n(c.options.shape.kv_heads)});
}

ShardedCase random_sharded(const RandomCase& plan) {
  std::mt19937_64 random(plan.seed * 77 + 5);
  const auto draw = [&](int64_t least, int64_t most) {
    return least + static_cast<int64_t>(
                       random() % static_cast<uint64_t>(most - least + 1));
  };
  ShardedCase c{plan, {}, {}};
  constexpr int64_t kMax = 16;
  const int64_t data = draw(0, 2) == 0 ? draw(1, 3) : 1;
  const int64_t head = draw(0, 2) == 0 ? draw(1, 3) : 1;
  const int64_t seq = draw(1, kMax / data / head);
  c.mesh.axes = {{"seq", seq}, {"data", data}, {"head", head}};
  std::shuffle(c.mesh.axes.begin(), c.mesh.axes.end(), random);
  ShardOptions& o = c.options;
  o.uneven = true;
  o.balance = static_cast<Balance>(draw(0, 3));
  o.dtype = Dtype::f32;
  const int64_t plan_heads =
      std::max<int64_t>(static_cast<int64_t>(plan.masks.size()),
                        plan.picks ? plan.pick_heads : 1);
  o.shape.heads = plan_heads * draw(1, 2);
  o.shape.kv_heads = plan.picks || draw(0, 1) == 0 ? plan_heads : 1;
  o.shape.head_dim = draw(1, 3);
  o.shape.v_head_dim = draw(1, 3);
  o.work.full = draw(1, 2);
  o.work.partial = draw(1, 3);
  if (draw(0, 3) == 0) o.evenness.tokens = 2;
  o.exchange = static_cast<TileExchange>(draw(0, 3));
  return c;
}

namespace {

// Work of tiles whose row and column are the shard's own, and of own rows
// without a tile.
int64_t early_work(const Shard& s, const ShardOptions& options) {
  int64_t out = 0;
  for (int64_t list = 0; list < s.lists; ++list) {
    for (int64_t r = 0; r < s.own_rows; ++r) {
      if (!s.computes[at(r)]) continue;
      const auto row = s.forward.row(list, r);
      if (row.empty()) out += options.work.partial;
      for (const Entry& e : row) {
        if (e.column() >= s.own_columns) continue;
        out += e.tile_class() == TileClass::full ? options.work.full
                                                 : options.work.partial;
      }
    }
  }
  return out;
}

}  // namespace

Fault pairs_fault(const ShardedCase& c, const Batch& batch,
                  const Shards& shards) {
  const Request& request = batch.request();
  const Oracle oracle(c.plan.masks, request, batch.facts());
  const int64_t heads = c.options.shape.heads;
  const int64_t rows = (request.q_len + request.tile.q - 1) / request.tile.q;
  const int64_t columns =
      (request.kv_len + request.tile.kv - 1) / request.tile.kv;
  // [batch, head, row, column]: how often a tile is computed, and its class.
  std::vector<int32_t> times(at(request.batch * heads * rows * columns), 0);
  std::vector<int32_t> as(times.size(), 0);
  std::vector<int32_t> row_times(at(request.batch * heads * rows), 0);
  const auto cell = [&](int64_t b, int64_t h, int64_t r, int64_t k) {
    return at(((b * heads + h) * rows + r) * columns + k);
  };
  for (const Shard& s : shards.shards) {
    if (early_work(s, c.options) != s.early_work) return "early work";
    for (int64_t h = 0; h < s.heads; ++h) {
      const int64_t plan_head = (s.first_head + h) * batch.plan().heads / heads;
      for (size_t r = 0; r < s.rows.size(); ++r) {
        if (!s.computes[r]) continue;
        const TileAt row = s.rows[r];
        const int64_t b = row.batch_row;
        ++row_times[at((b * heads + s.first_head + h) * rows + row.tile)];
        int64_t before = -1;
        for (const Entry& e :
             s.forward.row(plan_head - s.first_list, static_cast<int64_t>(r))) {
          const TileAt column = s.columns[at(e.column())];
          if (e.column() <= before) return "columns must ascend";
          before = e.column();
          if (column.tile < 0 || column.batch_row != b) {
            return words({"row ", n(row.tile),
                          " reads a column that is not "
                          "there"});
          }
          ++times[cell(b, s.first_head + h, row.tile, column.tile)];
          as[cell(b, s.first_head + h, row.tile, column.tile)] =
              static_cast<int32_t>(e.tile_class());
        }
      }
    }
  }
  for (const int32_t t : row_times) {
    if (t != 1) return words({"a row is computed ", n(t), " times"});
  }
  for (int64_t b = 0; b < request.batch; ++b) {
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t plan_head = h * batch.plan().heads / heads;
      for (int64_t i = 0; i < request.q_len; ++i) {
        for (int64_t j = 0; j < request.kv_len; ++j) {
          const size_t t = cell(b, h, i / request.tile.q, j / request.tile.kv);
          const bool legal = oracle.legal(b, plan_head, i, j);
          const bool full = as[t] == static_cast<int32_t>(TileClass::full);
          if ((legal && times[t] != 1) || times[t] > 1 || (!legal && full)) {
            return words({"pair ", n(i), ", ", n(j), " of batch row ", n(b),
                          " and head ", n(h), " is computed ", n(times[t]),
                          " times, as class ", n(as[t])});
          }
        }
      }
    }
  }
  return {};
}

}  // namespace tessera::testing
