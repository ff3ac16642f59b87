// tests/sharded_run.cc: simulates devices one after the other, in plain loops.
#include "tests/sharded_run.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lanes/reference/judge.h"

namespace tessera::testing {
namespace {

using Fault = std::optional<std::string>;

size_t at(int64_t i) { return static_cast<size_t>(i); }

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

// Tiles of one kind in a shard's buffer: tokens x dim numbers for each of its
// heads, NaN if the tile was not received.
struct Buffer {
  int64_t heads = 0, tiles = 0, tokens = 0, dim = 0;
  std::vector<double> values;

  Buffer(int64_t h, int64_t n_tiles, int64_t t, int64_t d, double fill)
      : heads(h),
        tiles(n_tiles),
        tokens(t),
        dim(d),
        values(at(h * n_tiles * t * d), fill) {}
  double* row(int64_t h, int64_t tile, int64_t token) {
    return values.data() + ((h * tiles + tile) * tokens + token) * dim;
  }
  // Copies, or adds, a tile of another shard, all heads.
  void take(Buffer& from, int64_t tile, int64_t to, bool add) {
    for (int64_t h = 0; h < heads; ++h) {
      double* const a = from.row(h, tile, 0);
      double* const b = row(h, to, 0);
      for (int64_t i = 0; i < tokens * dim; ++i)
        b[i] = add ? b[i] + a[i] : a[i];
    }
  }
};

// A whole array [batch, heads, tokens, dim].
struct Array {
  int64_t batch, heads, tokens, dim;
  std::vector<float> values;

  Array(int64_t b, int64_t h, int64_t t, int64_t d)
      : batch(b), heads(h), tokens(t), dim(d), values(at(b * h * t * d)) {}
  float* row(int64_t b, int64_t h, int64_t t) {
    return values.data() + ((b * heads + h) * tokens + t) * dim;
  }
  MutableTensorView view() {
    return MutableTensorView::bhsd(values.data(), Dtype::f32, batch, heads,
                                   tokens, dim);
  }
};

Array random_array(std::mt19937_64& random, int64_t b, int64_t h, int64_t t,
                   int64_t d) {
  Array out(b, h, t, d);
  for (float& x : out.values) {
    x = static_cast<float>(static_cast<double>(random() % 2001) / 1000 - 1);
  }
  return out;
}

class Devices {
 public:
  Devices(const ShardedCase& c, const Batch& batch, const Shards& shards)
      : batch_(batch),
        shards_(shards),
        shape_(c.options.shape),
        request_(batch.request()),
        seq_(shards.mesh.size("seq")),
        random_(c.plan.seed),
        q_(random_array(random_, request_.batch, shape_.heads, request_.q_len,
                        shape_.head_dim)),
        k_(random_array(random_, request_.batch, shape_.kv_heads,
                        request_.kv_len, shape_.head_dim)),
        v_(random_array(random_, request_.batch, shape_.kv_heads,
                        request_.kv_len, shape_.v_head_dim)),
        dout_(random_array(random_, request_.batch, shape_.heads,
                           request_.q_len, shape_.v_head_dim)),
        out_(request_.batch, shape_.heads, request_.q_len, shape_.v_head_dim),
        lse_(request_.batch, shape_.heads, request_.q_len, 1),
        dq_(request_.batch, shape_.heads, request_.q_len, shape_.head_dim),
        dk_(request_.batch, shape_.kv_heads, request_.kv_len, shape_.head_dim),
        dv_(request_.batch, shape_.kv_heads, request_.kv_len,
            shape_.v_head_dim) {
    for (Array* a : {&out_, &lse_, &dq_, &dk_, &dv_}) {
      std::fill(a->values.begin(), a->values.end(),
                std::numeric_limits<float>::quiet_NaN());
    }
  }

  Fault run() {
    auto legality = Legality::bind(request_, batch_.facts());
    if (!legality) return legality.error().message;
    for (size_t s = 0; s < shards_.shards.size(); ++s) load(s);
    travel(shards_.kv, true, {&k_here_, &v_here_});
    travel(shards_.q, false, {&q_here_, &dout_here_});
    for (size_t s = 0; s < shards_.shards.size(); ++s) compute(s, *legality);
    // The output, its log-sum-exp and gradients are sent back.
    come_home(shards_.q, false, {&out_here_, &lse_here_, &dq_here_});
    come_home(shards_.kv, true, {&dk_here_, &dv_here_});
    for (size_t s = 0; s < shards_.shards.size(); ++s) store(s);
    return judge();
  }

 private:
  using Buffers = std::vector<Buffer>;

  // Loads a shard's own tiles, with room for tiles that it receives.
  void load(size_t index) {
    const Shard& s = shards_.shards[index];
    const auto rows = static_cast<int64_t>(s.rows.size());
    const auto columns = static_cast<int64_t>(s.columns.size());
    const Tile& tile = shards_.tile;
    const int64_t d = shape_.head_dim;
    const int64_t dv = shape_.v_head_dim;
    q_here_.emplace_back(s.heads, rows, tile.q, d, kNan);
    dout_here_.emplace_back(s.heads, rows, tile.q, dv, kNan);
    k_here_.emplace_back(s.kv_heads, columns, tile.kv, d, kNan);
    v_here_.emplace_back(s.kv_heads, columns, tile.kv, dv, kNan);
    out_here_.emplace_back(s.heads, rows, tile.q, dv, kNan);
    lse_here_.emplace_back(s.heads, rows, tile.q, 1, kNan);
    dq_here_.emplace_back(s.heads, rows, tile.q, d, kNan);
    dk_here_.emplace_back(s.kv_heads, columns, tile.kv, d, 0);
    dv_here_.emplace_back(s.kv_heads, columns, tile.kv, dv, 0);
    copy_own(q_, s.rows, s.own_rows, s.first_head, q_here_.back(), false);
    copy_own(dout_, s.rows, s.own_rows, s.first_head, dout_here_.back(), false);
    copy_own(k_, s.columns, s.own_columns, s.first_kv_head, k_here_.back(),
             false);
    copy_own(v_, s.columns, s.own_columns, s.first_kv_head, v_here_.back(),
             false);
  }

  static void copy_own(Array& whole, const std::vector<TileAt>& tiles,
                       int64_t own, int64_t first_head, Buffer& here,
                       bool back) {
    for (int64_t i = 0; i < own; ++i) {
      const TileAt t = tiles[at(i)];
      for (int64_t h = 0; h < here.heads; ++h) {
        for (int64_t r = 0; r < here.tokens; ++r) {
          const int64_t token = t.tile * here.tokens + r;
          if (token >= whole.tokens) continue;
          float* const w = whole.row(t.batch_row, first_head + h, token);
          double* const b = here.row(h, i, r);
          for (int64_t x = 0; x < here.dim; ++x) {
            if (back) {
              w[x] = static_cast<float>(b[x]);
            } else {
              b[x] = w[x];
            }
          }
        }
      }
    }
  }

  // visit(sender, receiver, tile of the sender, place at the receiver)
  template <class Visit>
  void each_sent(const Traffic& traffic, bool columns, const Visit& visit) {
    for (size_t to = 0; to < shards_.shards.size(); ++to) {
      const Shard& r = shards_.shards[to];
      int64_t place =
          columns ? shards_.shapes.own_columns : shards_.shapes.own_rows;
      for (size_t round = 0; round < traffic.rounds.size(); ++round) {
        const Round& x = traffic.rounds[round];
        const size_t from =
            to - at(r.seq) + at((r.seq - x.shift + seq_) % seq_);
        const auto& sends = traffic.send[from][round];
        for (size_t i = 0; i < sends.size(); ++i) {
          const int64_t of_all =
              (shards_.shards[from].seq + 1) * x.capacity + sends[i];
          visit(
              from, to, sends[i],
              columns && gathers() ? of_all : place + static_cast<int64_t>(i));
        }
        place += x.capacity;
      }
    }
  }

  // With gather, own columns come first, then those of each shard by number.
  bool gathers() const { return shards_.exchange == TileExchange::gather; }

  void travel(const Traffic& traffic, bool columns,
              const std::vector<Buffers*>& arrays) {
    each_sent(traffic, columns,
              [&](size_t from, size_t to, int64_t tile, int64_t place) {
                for (Buffers* a : arrays) {
                  (*a)[to].take((*a)[from], tile, place, false);
                }
              });
  }

  // Gradients of K and V are added; results of a row come from one shard.
  void come_home(const Traffic& traffic, bool columns,
                 const std::vector<Buffers*>& arrays) {
    each_sent(traffic, columns,
              [&](size_t home, size_t at_work, int64_t tile, int64_t place) {
                for (Buffers* a : arrays) {
                  (*a)[home].take((*a)[at_work], place, tile, columns);
                }
              });
  }

  // The result of one query with the keys of one arrival.
  struct Part {
    double lse = -kInf;
    std::vector<double> out;
  };

  // Calls visit(column, key) for the keys of a step that the query may see.
  template <class Visit>
  void each_key(const Shard& s, const Legality& legality, const Entry& e,
                const TileAt& row, int64_t query, int64_t plan_head,
                const Visit& visit) {
    const TileAt column = s.columns[at(e.column())];
    for (int64_t j = 0; j < shards_.tile.kv; ++j) {
      const int64_t key = column.tile * shards_.tile.kv + j;
      if (key >= request_.kv_len) break;
      if (e.tile_class() == TileClass::partial &&
          !legality.legal(row.batch_row, plan_head, query, key)) {
        continue;
      }
      visit(e.column(), j);
    }
  }

  // The arrival that brings a column; 0 means a column of the shard itself.
  size_t arrival(int64_t column) const {
    if (gathers()) return at(column / shards_.shapes.own_columns);
    int64_t end = shards_.shapes.own_columns;
    size_t i = 0;
    while (column >= end) end += shards_.kv.rounds[i++].capacity;
    return i;
  }

  void compute(size_t index, const Legality& legality) {
    const Shard& s = shards_.shards[index];
    for (int64_t h = 0; h < s.heads; ++h) {
      const int64_t plan_head =
          (s.first_head + h) * batch_.plan().heads / shape_.heads;
      for (int64_t r = 0; r < static_cast<int64_t>(s.rows.size()); ++r) {
        if (!s.computes[at(r)]) continue;
        for (int64_t i = 0; i < shards_.tile.q; ++i) {
          const int64_t query = s.rows[at(r)].tile * shards_.tile.q + i;
          if (query >= request_.q_len) break;
          one_query(index, legality, h, plan_head, r, i, query);
        }
      }
    }
  }

  void one_query(size_t index, const Legality& legality, int64_t h,
                 int64_t plan_head, int64_t r, int64_t i, int64_t query) {
    const Shard& s = shards_.shards[index];
    const int64_t g = h / (shape_.heads / shape_.kv_heads);
    const auto row = s.forward.row(plan_head - s.first_list, r);
    const double* const q = q_here_[index].row(h, r, i);
    const double scale = shape_.scale_or_default();
    const auto score = [&](int64_t column, int64_t j) {
      const double* const k = k_here_[index].row(g, column, j);
      double sum = 0;
      for (int64_t x = 0; x < shape_.head_dim; ++x) sum += q[x] * k[x];
      return scale * sum;
    };
    const TileAt tile = s.rows[at(r)];
    std::vector<Part> parts(at(seq_ + 1));
    for (const Entry& e : row) {
      Part& p = parts[arrival(e.column())];
      p.out.resize(at(shape_.v_head_dim), 0);
      each_key(s, legality, e, tile, query, plan_head,
               [&](int64_t column, int64_t j) {
                 const double x = score(column, j);
                 const double top = std::max(p.lse, x);
                 const double old = std::exp(p.lse - top);
                 const double one = std::exp(x - top);
                 const double* const v = v_here_[index].row(g, column, j);
                 for (int64_t d = 0; d < shape_.v_head_dim; ++d) {
                   p.out[at(d)] =
                       (p.out[at(d)] * old + v[d] * one) / (old + one);
                 }
                 p.lse = top + std::log(old + one);
               });
    }
    join(parts, lse_here_[index].row(h, r, i), out_here_[index].row(h, r, i));
    backward(index, legality, h, g, plan_head, r, i, query, score);
  }

  // Merges the parts in the order of arrival.
  void join(const std::vector<Part>& parts, double* lse, double* out) const {
    *lse = -kInf;
    std::fill(out, out + shape_.v_head_dim, 0.0);
    for (const Part& p : parts) {
      if (p.lse == -kInf) continue;
      const double top = std::max(*lse, p.lse);
      const double a = std::exp(*lse - top);
      const double b = std::exp(p.lse - top);
      for (int64_t d = 0; d < shape_.v_head_dim; ++d) {
        out[d] = (out[d] * a + p.out[at(d)] * b) / (a + b);
      }
      *lse = top + std::log(a + b);
    }
  }

  template <class Score>
  void backward(size_t index, const Legality& legality, int64_t h, int64_t g,
                int64_t plan_head, int64_t r, int64_t i, int64_t query,
                const Score& score) {
    const Shard& s = shards_.shards[index];
    const double lse = *lse_here_[index].row(h, r, i);
    const double* const out = out_here_[index].row(h, r, i);
    const double* const dout = dout_here_[index].row(h, r, i);
    const double* const q = q_here_[index].row(h, r, i);
    double* const dq = dq_here_[index].row(h, r, i);
    std::fill(dq, dq + shape_.head_dim, 0.0);
    double delta = 0;
    for (int64_t d = 0; d < shape_.v_head_dim; ++d) delta += out[d] * dout[d];
    for (const Entry& e : s.forward.row(plan_head - s.first_list, r)) {
      each_key(s, legality, e, s.rows[at(r)], query, plan_head,
               [&](int64_t column, int64_t j) {
                 const double p = std::exp(score(column, j) - lse);
                 const double* const v = v_here_[index].row(g, column, j);
                 const double* const k = k_here_[index].row(g, column, j);
                 double* const dv = dv_here_[index].row(g, column, j);
                 double* const dk = dk_here_[index].row(g, column, j);
                 double dp = 0;
                 for (int64_t d = 0; d < shape_.v_head_dim; ++d) {
                   dp += dout[d] * v[d];
                   dv[d] += p * dout[d];
                 }
                 const double ds = p * (dp - delta) * shape_.scale_or_default();
                 for (int64_t d = 0; d < shape_.head_dim; ++d) {
                   dq[d] += ds * k[d];
                   dk[d] += ds * q[d];
                 }
               });
    }
  }

  void store(size_t index) {
    const Shard& s = shards_.shards[index];
    copy_own(out_, s.rows, s.own_rows, s.first_head, out_here_[index], true);
    copy_own(lse_, s.rows, s.own_rows, s.first_head, lse_here_[index], true);
    copy_own(dq_, s.rows, s.own_rows, s.first_head, dq_here_[index], true);
    copy_own(dk_, s.columns, s.own_columns, s.first_kv_head, dk_here_[index],
             true);
    copy_own(dv_, s.columns, s.own_columns, s.first_kv_head, dv_here_[index],
             true);
  }

  Fault judge() {
    const ForwardTensors f{as_input(q_.view()), as_input(k_.view()),
                           as_input(v_.view()), {},
                           out_.view(),         lse_.values};
    auto forward = reference::judge_forward(batch_, shape_, f);
    if (!forward) return forward.error().message;
    if (!forward->passed()) return "forward: " + forward->worst;
    const Gradients g{
        as_input(dout_.view()), {}, dq_.view(), dk_.view(), dv_.view(), {}};
    auto backward = reference::judge_backward(batch_, shape_, f, g);
    if (!backward) return backward.error().message;
    if (!backward->passed()) return "backward: " + backward->worst;
    return {};
  }

  const Batch& batch_;
  const Shards& shards_;
  const AttentionShape shape_;
  const Request& request_;
  const int64_t seq_;
  std::mt19937_64 random_;
  Array q_, k_, v_, dout_, out_, lse_, dq_, dk_, dv_;
  Buffers q_here_, k_here_, v_here_, dout_here_, out_here_, lse_here_, dq_here_,
      dk_here_, dv_here_;
};

}  // namespace

Fault run_fault(const ShardedCase& c, const Batch& batch,
                const Shards& shards) {
  return Devices(c, batch, shards).run();
}

}  // namespace tessera::testing
