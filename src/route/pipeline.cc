// route/pipeline.cc: runs the stages of routing in order.
#include <algorithm>
#include <new>
#include <utility>

#include "base/fail.h"
#include "base/integers.h"
#include "base/isa.h"
#include "base/tensor_rows.h"
#include "base/threads.h"
#include "base/trace.h"
#include "mask/bind.h"
#include "route/expand.h"
#include "route/legality.h"
#include "route/memory_use.h"
#include "route/pool.h"
#include "route/rows.h"
#include "route/score.h"
#include "route/settings.h"
#include "route/stoppable.h"
#include "route/tasks.h"
#include "route/top_n.h"
#include "route/unions.h"
#include "route/window.h"
#include "tessera/attention.h"
#include "tessera/route.h"

namespace tessera::routing {
namespace {

// The largest offset of an element from the first.
constexpr int64_t kMaxReach = int64_t{1} << 60;

Result<void> check_tensor(std::string_view name, const TensorView& t,
                          int64_t batch, int64_t tokens) {
  if (t.data == nullptr || !is_float_dtype(t.dtype)) {
    return invalid("route", "{} must be an array of F32, BF16 or F16, found {}",
                   name, t.data == nullptr ? "none" : to_string(t.dtype));
  }
  if (t.batch != batch || t.tokens != tokens || t.heads < 1 ||
      t.heads > kMaxHeads || t.dim < 1 || t.dim > kMaxHeadDim) {
    return invalid("route",
                   "{} must be [{}, heads, {}, dim] of at most {} heads and "
                   "dim {}, found [{}, {}, {}, {}]",
                   name, batch, tokens, kMaxHeads, kMaxHeadDim, t.batch,
                   t.heads, t.tokens, t.dim);
  }
  // A stride of 0 repeats one row; no offset may overflow an index.
  constexpr int64_t kMaxStride = int64_t{1} << 50;
  int64_t reach = t.dim;
  for (const auto& [count, stride] :
       {std::pair(t.batch, t.batch_stride), std::pair(t.heads, t.head_stride),
        std::pair(t.tokens, t.token_stride)}) {
    if (stride < 0 || stride > kMaxStride) {
      return invalid("route", "strides of {} must be from 0 to {}, found {}",
                     name, kMaxStride, stride);
    }
    int64_t part = 0;
    if (__builtin_mul_overflow(count - 1, stride, &part) ||
        part > kMaxReach - reach) {
      return invalid("route", "{} must reach {} numbers at most, found more",
                     name, kMaxReach);
    }
    reach += part;
  }
  return {};
}

// One level of scoring: blocks, or the groups of blocks scored before them.
struct Level {
  Compression compression;
  int64_t block = 0;
  std::vector<ScoreKeys> keys;         // per batch row
  std::vector<RoutingWindow> windows;  // per batch row
};

class Router {
 public:
  Router(const Request& request, const RouteInputs& inputs,
         const RouteSettings& settings, const RouteOptions& options,
         const Stopped& stopped)
      : request_(request),
        in_(inputs),
        s_(settings),
        options_(options),
        stopped_(stopped) {
    threads_ = route_threads(options.threads);
    out_.settings = settings;
  }

  Result<RouteResult> run(const Facts& facts) {
    const TraceSpan span("route", "route");
    if (auto e = check(); !e) return e.error();
    auto rows = route_rows(request_, facts, s_.block);
    if (!rows) return rows.error();
    rows_ = std::move(*rows);
    const bool given = in_.picks || in_.tile_picks;
    if (auto e = given ? take_given() : route_queries(); !e) return e.error();
    if (auto e = finish(); !e) return e.error();
    return std::move(out_);
  }

 private:
  bool wants(RouteStage stage) const { return stage <= options_.until; }
  void done(RouteStage stage) const {
    if (options_.after) options_.after(stage);
  }
  int64_t tiles() const { return ceil_div(request_.q_len, s_.query_tile); }

  Result<void> check() {
    if (auto e = mask::check_request(request_); !e) return e;
    if (auto e = check_settings(s_); !e) return e;
    if (auto e = check_mask(); !e) return e;
    if (options_.threads < 0 || options_.threads > kMaxThreads) {
      return invalid("route", "threads must be from 0 to {}, found {}",
                     kMaxThreads, options_.threads);
    }
    auto isa = choose_isa(options_.isa);
    if (!isa) return isa.error();
    isa_ = *isa;
    if (in_.picks && in_.tile_picks) {
      return invalid("route",
                     "picks are given for queries or for query tiles, found "
                     "both");
    }
    if (in_.picks || in_.tile_picks) {
      if (in_.metas) {
        return invalid("route", "given picks take no metas, found both");
      }
      if (!in_.q || !in_.k) return {};
      const Picks& given = in_.picks ? *in_.picks : *in_.tile_picks;
      return check_pick_heads(given.heads, in_.k->heads, in_.q->heads);
    }
    if (!in_.q || !in_.k) {
      return invalid("route", "routing needs q and k, or picks, found no {}",
                     in_.q ? "k" : "q");
    }
    if (auto e = check_arrays(); !e) return e;
    return check_metas();
  }

  // If a mask names picks, its settings must be those given.
  Result<void> check_mask() const {
    if (!mask::names_of(request_).picks) return {};
    auto named = settings_of(request_, s_);
    if (!named) return named.error();
    if (named->block != s_.block) {
      return invalid("route", "block must be the mask's {}, found {}",
                     named->block, s_.block);
    }
    if (named->top != s_.top) {
      return invalid("route", "top must be the mask's {}, found {}", named->top,
                     s_.top);
    }
    return {};
  }

  Result<void> check_arrays() {
    const TensorView& q = *in_.q;
    const TensorView& k = *in_.k;
    if (auto e = check_tensor("q", q, request_.batch, request_.q_len); !e) {
      return e;
    }
    if (auto e = check_tensor("k", k, request_.batch, request_.kv_len); !e) {
      return e;
    }
    if (q.dim != k.dim || q.dtype != k.dtype) {
      return invalid("route",
                     "q and k must have one dtype and dim, found {} of {} and "
                     "{} of {}",
                     to_string(q.dtype), q.dim, to_string(k.dtype), k.dim);
    }
    if (q.heads % k.heads != 0) {
      return invalid("route", "kv_heads must divide heads, found {} for {}",
                     k.heads, q.heads);
    }
    out_.heads = heads_of(s_.rule, shape());
    return set_slots(s_.top);
  }

  Result<void> set_slots(int64_t k) {
    int64_t count = 0;
    if (__builtin_mul_overflow(request_.batch * out_.heads, request_.q_len,
                               &count) ||
        __builtin_mul_overflow(count, k, &count) || count > kMaxPicks) {
      return over_limit(
          "route", "picks must be at most {}, found [{}, {}, {}, {}]",
          kMaxPicks, request_.batch, out_.heads, request_.q_len, k);
    }
    out_.k = k;
    return {};
  }

  RouteShape shape() const { return {in_.q->heads, in_.k->heads, in_.q->dim}; }

  // Counts `bytes` against the memory limit before they are allocated.
  Result<void> take_room(double bytes) {
    room_ += bytes;
    if (room_ <= static_cast<double>(options_.memory)) return {};
    return over_limit("route",
                      "pooled keys, scores and picks must fit {} bytes of "
                      "memory, found {:.4g} bytes for them",
                      options_.memory, room_);
  }

  PickSizes sizes() const {
    return {request_.batch, out_.heads, request_.q_len,
            out_.k,         s_.block,   request_.kv_len};
  }

  // ---- Picks of another router.

  Result<void> take_given() {
    const bool tiled = in_.tile_picks.has_value();
    const Picks& given = tiled ? *in_.tile_picks : *in_.picks;
    PickSizes of = sizes();
    if (tiled) of.q_len = tiles();
    auto e = check_picks(given, of, tiled ? "tile picks" : "picks",
                         tiled ? "query tile" : "query");
    if (!e) return e;
    out_.heads = given.heads;
    if (auto f = set_slots(given.k); !f) return f;
    if (auto f = take_room(pick_bytes(sizes(), s_.query_tile)); !f) return f;
    const auto k = static_cast<size_t>(out_.k);
    out_.picks.resize(
        static_cast<size_t>(request_.batch * out_.heads * request_.q_len) * k);
    const auto queries = static_cast<int64_t>(out_.picks.size() / k);
    for (int64_t row = 0; row < queries; ++row) {
      const int64_t q = row % request_.q_len;
      const int64_t from =
          tiled ? row / request_.q_len * tiles() + q / s_.query_tile : row;
      const auto blocks =
          given.blocks.subspan(static_cast<size_t>(from) * k, k);
      std::copy(blocks.begin(), blocks.end(),
                out_.picks.begin() + row * out_.k);
    }
    return {};
  }

  // ---- Picks made here.

  Result<void> route_queries() {
    const TensorView& k = *in_.k;
    if (in_.metas) {
      metas_k_ = in_.metas->k;
    } else if (s_.hierarchical) {
      metas_k_ = metas_kept(request_, s_);
    }
    cut_ = score_cut(request_, rows_, s_, metas_k_, threads_);
    auto e = take_room(route_bytes(request_, rows_, s_, shape(), threads_));
    if (!e) return e;
    fine_.compression = {s_.compression, s_.stride};
    fine_.block = s_.block;
    if (auto f = prepare(fine_, k); !f) return f;
    if (s_.hierarchical) {
      coarse_.block = s_.block * s_.meta_ratio;
      coarse_.compression = {coarse_.block, coarse_.block};
      if (auto f = prepare(coarse_, k); !f) return f;
    }
    done(RouteStage::pool);
    if (!wants(RouteStage::window)) return {};
    set_windows(fine_, s_.kv_tile);
    if (s_.hierarchical) set_windows(coarse_, coarse_.block);
    for (const RoutingWindow& w : fine_.windows) {
      out_.counts.routing_tiles +=
          w.tiles * static_cast<int64_t>(w.scored.size());
      for (const int32_t n : w.scored) out_.counts.routing_tiles_scored += n;
    }
    done(RouteStage::window);
    if (!wants(RouteStage::coarse)) return {};
    if (wants(RouteStage::top_n)) {
      out_.picks.assign(static_cast<size_t>(request_.batch * out_.heads *
                                            request_.q_len * out_.k),
                        -1);
    }
    return score_groups();
  }

  Result<void> prepare(Level& level, const TensorView& k) {
    std::vector<PooledRow> pooled;
    for (const RouteRow& row : rows_) {
      const int64_t count = count_pooled_keys(row, level.compression);
      if (count > kMaxPooledKeys) {
        return over_limit("route",
                          "pooled keys of a batch row must be at most {}, "
                          "found {}",
                          kMaxPooledKeys, count);
      }
      pooled.push_back(find_pooled_keys(row, level.compression));
      out_.counts.pooled_keys += count;
    }
    pool_keys(rows_, k, threads_, pooled);
    for (PooledRow& row : pooled) {
      level.keys.push_back(
          pack_score_keys(row, level.compression, level.block, k.heads, k.dim));
      row = {};
    }
    return {};
  }

  void set_windows(Level& level, int64_t kv_tile) const {
    const WindowSizes sizes{request_.q_len, request_.kv_len, s_.query_tile,
                            kv_tile, level.compression.stride};
    for (const RouteRow& row : rows_) {
      level.windows.push_back(causal_window(sizes, row.q_offset, s_.windowed));
    }
  }

  Result<void> check_metas() const {
    if (!in_.metas) return {};
    if (!s_.hierarchical || s_.rule == RouteRule::query_tile) {
      return invalid(
          "route",
          "metas are of single queries and of hierarchical "
          "routing, found them for {}",
          s_.hierarchical ? to_string(s_.rule) : "exhaustive routing");
    }
    PickSizes of = sizes();
    of.block = s_.block * s_.meta_ratio;
    if (auto e = check_picks(*in_.metas, of, "metas", "query"); !e) return e;
    if (in_.metas->heads == out_.heads) return {};
    return invalid("route", "metas must have {} heads, found {}", out_.heads,
                   in_.metas->heads);
  }

  // Queries [begin, end) of one tile and one head that picks.
  struct Job {
    int64_t batch_row = 0, head = 0, tile = 0, begin = 0, end = 0;
    std::vector<RoutingQuery> queries;
    TileScores scores;
    std::vector<int32_t> metas;  // [queries, metas_k]
    int64_t products = 0;
    std::optional<Error> error;
  };
  struct Worker {
    ScoreScratch scratch;
    TileScores scores;
    std::vector<int32_t> forced;
    std::vector<size_t> place;
    TopScratch top, top_metas;
  };

  // Scores in groups of jobs, which bounds the memory of scores.
  Result<void> score_groups() {
    const int64_t jobs = request_.batch * out_.heads * tiles() * cut_.parts;
    const int64_t size = cut_.group;
    std::vector<Job> group(static_cast<size_t>(std::min(size, jobs)));
    std::vector<Worker> workers(static_cast<size_t>(threads_));
    for (int64_t first = 0; first < jobs; first += size) {
      const int64_t count = std::min(size, jobs - first);
      const auto each = [&](auto&& work, const char* name) -> Result<void> {
        const bool ran = run_tasks(
            count, threads_,
            [&](int64_t i, int worker) {
              work(group[static_cast<size_t>(i)],
                   workers[static_cast<size_t>(worker)]);
            },
            name, stopped_);
        if (ran) return first_error(group, count);
        return stopped_error("route",
                             fmt::format("after {} of {} parts", first, jobs));
      };
      for (int64_t i = 0; i < count; ++i) {
        begin(first + i, group[static_cast<size_t>(i)]);
      }
      if (s_.hierarchical) {
        auto e =
            each([&](Job& job, Worker& w) { choose_metas(job, w); }, "coarse");
        done(RouteStage::coarse);
        if (!e) return e;
      }
      if (!wants(RouteStage::score)) continue;
      auto e = each([&](Job& job, Worker& w) { score(job, w); }, "score");
      done(RouteStage::score);
      if (!e) return e;
      if (!wants(RouteStage::top_n)) continue;
      auto f = each([&](Job& job, Worker& w) { pick(job, w); }, "top_n");
      done(RouteStage::top_n);
      if (!f) return f;
    }
    return {};
  }

  // The lowest job's error, so that the number of threads does not matter.
  Result<void> first_error(std::vector<Job>& group, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      Job& job = group[static_cast<size_t>(i)];
      if (job.error) return *job.error;
      out_.counts.scores += std::exchange(job.products, 0);
    }
    return {};
  }

  void begin(int64_t number, Job& job) const {
    const int64_t part = number % cut_.parts;
    const int64_t tile = number / cut_.parts;
    job.tile = tile % tiles();
    job.head = tile / tiles() % out_.heads;
    job.batch_row = tile / tiles() / out_.heads;
    const int64_t first = job.tile * s_.query_tile;
    const int64_t end = std::min(request_.q_len, first + s_.query_tile);
    job.begin = std::min(end, first + part * cut_.queries);
    job.end = std::min(end, job.begin + cut_.queries);
    job.products = 0;
  }

  ScoreTile tile_of(const Level& level, const Job& job) const {
    const auto row = static_cast<size_t>(job.batch_row);
    const int64_t group = in_.q->heads / in_.k->heads;
    const bool alone = s_.rule == RouteRule::query_head;
    return {*in_.q,
            level.keys[row],
            job.queries,
            job.batch_row,
            alone ? job.head : job.head * group,
            alone ? 1 : group,
            alone ? job.head / group : job.head,
            level.windows[row].end(job.tile),
            isa_};
  }

  const RouteRow& row_of(const Job& job) const {
    return rows_[static_cast<size_t>(job.batch_row)];
  }
  void find_queries(Job& job, Worker& w) const {
    job.queries =
        routing_queries(row_of(job), s_.rule, job.begin, job.end, w.place);
  }

  static Error nan_error(const TileScores::Nan& nan, std::string_view what,
                         const Job& job) {
    return invalid("route",
                   "scores must not be NaN, found one for query {} and {} {} "
                   "of batch row {}, head {}",
                   nan.query, what, nan.block, job.batch_row, job.head);
  }

  Error too_many(size_t forced, std::string_view what, int64_t top,
                 const Job& job) const {
    return invalid("route",
                   "{} must hold all forced blocks, found {} for {} in tile "
                   "row {} of batch row {}",
                   what, top, forced, job.tile, job.batch_row);
  }

  void choose_metas(Job& job, Worker& w) const {
    find_queries(job, w);
    const int64_t k = metas_k_;
    job.metas.assign(job.queries.size() * static_cast<size_t>(k), -1);
    if (in_.metas) {
      for (size_t i = 0; i < job.queries.size(); ++i) {
        const int64_t from =
            ((job.batch_row * out_.heads + job.head) * request_.q_len +
             job.queries[i].query) *
            k;
        std::copy_n(in_.metas->blocks.begin() + from, k,
                    job.metas.begin() + static_cast<int64_t>(i) * k);
      }
      return;
    }
    const ScoreTile tile = tile_of(coarse_, job);
    score_tile(tile, w.scratch, w.scores);
    job.products += w.scores.products;
    if (w.scores.nan) {
      job.error = nan_error(*w.scores.nan, "meta", job);
      return;
    }
    for (size_t i = 0; i < job.queries.size(); ++i) {
      const RoutingQuery& query = job.queries[i];
      find_forced(job, query, w.forced);
      for (int32_t& b : w.forced) {
        b = static_cast<int32_t>(b / s_.meta_ratio);
      }
      w.forced.erase(std::unique(w.forced.begin(), w.forced.end()),
                     w.forced.end());
      if (static_cast<int64_t>(w.forced.size()) > k) {
        job.error = too_many(w.forced.size(), "top_metas", k, job);
        return;
      }
      pick_top(values_of(w.scores, i), tile.keys.blocks_of(query.document),
               w.forced, w.top_metas,
               std::span(job.metas).subspan(i * static_cast<size_t>(k),
                                            static_cast<size_t>(k)));
    }
  }

  static std::span<const float> values_of(const TileScores& scores, size_t i) {
    return {scores.values.data() + scores.start[i],
            static_cast<size_t>(scores.start[i + 1] - scores.start[i])};
  }

  void find_forced(const Job& job, const RoutingQuery& query,
                   std::vector<int32_t>& forced) const {
    forced_blocks(row_of(job), query, s_.block, request_.kv_len, s_.sink_blocks,
                  forced);
  }

  void score(Job& job, Worker& w) const {
    if (s_.hierarchical) {
      score_children(tile_of(fine_, job), {s_.meta_ratio, metas_k_, job.metas},
                     w.scratch, job.scores);
    } else {
      find_queries(job, w);
      score_tile(tile_of(fine_, job), w.scratch, job.scores);
    }
    job.products += job.scores.products;
    if (job.scores.nan) job.error = nan_error(*job.scores.nan, "block", job);
  }

  void pick(Job& job, Worker& w) {
    const ScoreKeys& keys = fine_.keys[static_cast<size_t>(job.batch_row)];
    const auto k = static_cast<size_t>(out_.k);
    for (size_t i = 0; i < job.queries.size(); ++i) {
      const RoutingQuery& query = job.queries[i];
      find_forced(job, query, w.forced);
      if (w.forced.size() > k) {
        job.error = too_many(w.forced.size(), "top", out_.k, job);
        return;
      }
      const auto values = values_of(job.scores, i);
      std::span<const int32_t> blocks = keys.blocks_of(query.document);
      if (!job.scores.blocks.empty()) {
        blocks = {job.scores.blocks.data() + job.scores.start[i],
                  values.size()};
      }
      int32_t* const list =
          out_.picks.data() +
          (job.batch_row * out_.heads + job.head) * request_.q_len * out_.k;
      int32_t* const to = list + query.query * out_.k;
      pick_top(values, blocks, w.forced, w.top, {to, k});
      for (const int32_t q : query.more) {
        std::copy_n(to, k, list + q * out_.k);
      }
    }
  }

  // ---- Stages for the picks of any router.

  Result<void> finish() {
    if (!wants(RouteStage::legality)) return {};
    const Removed removed =
        remove_illegal(rows_, sizes(), threads_, out_.picks);
    RouteCounts& c = out_.counts;
    c.removed_invalid = removed.count[0];
    c.removed_documents = removed.count[1];
    c.removed_future = removed.count[2];
    if (auto e = judge_given(removed); !e) return e;
    for (const int32_t p : out_.picks) c.picks += p >= 0;
    done(RouteStage::legality);
    if (!wants(RouteStage::unions)) return {};
    out_.unions = make_unions(sizes(), out_.picks, s_.query_tile,
                              s_.union_method, threads_);
    c.union_blocks = static_cast<int64_t>(out_.unions.blocks.size());
    c.tile_rows = static_cast<int64_t>(out_.unions.start.size()) - 1;
    if (auto e = set_capacity(request_.ceilings.max_union, out_.unions); !e) {
      return e;
    }
    done(RouteStage::unions);
    if (!wants(RouteStage::expand)) return {};
    return expand();
  }

  // Reports illegal picks of another router. A pick of a tile is illegal only
  // if no query of the tile may follow it.
  Result<void> judge_given(const Removed& removed) {
    if (!in_.picks && !in_.tile_picks) return {};
    const bool tiled = in_.tile_picks.has_value();
    const Removed faults =
        tiled
            ? illegal_tile_picks(rows_, sizes(), s_.query_tile, *in_.tile_picks)
            : removed;
    if (!faults.first) return {};
    const Error error =
        illegal_pick(*faults.first, tiled ? "query tile" : "query");
    if (s_.strict) return error;
    out_.warnings.push_back(
        fmt::format("{} ({} removed in all)", error.message, faults.all()));
    return {};
  }

  Result<void> expand() {
    out_.run_k = out_.k;
    if (s_.meaning == RouteMeaning::tile_union) {
      const int64_t k = std::max<int64_t>(out_.unions.widest, 1);
      const int64_t rows = request_.batch * out_.heads * request_.q_len;
      if (rows > kMaxPicks / k) {
        return over_limit("route",
                          "picks of the union meaning must be at most {}, "
                          "found {} queries of {} blocks",
                          kMaxPicks, rows, k);
      }
      const double bytes =
          4 * static_cast<double>(rows) * static_cast<double>(k);
      if (auto e = take_room(bytes); !e) return e;
      out_.run_k = k;
      out_.run_picks =
          expand_unions(sizes(), out_.unions, s_.query_tile, threads_);
    }
    done(RouteStage::expand);
    return {};
  }

  const Request& request_;
  const RouteInputs& in_;
  const RouteSettings& s_;
  const RouteOptions& options_;
  const Stopped& stopped_;
  int threads_ = 1;
  Isa isa_ = Isa::portable;
  std::vector<RouteRow> rows_;
  Level fine_, coarse_;
  int64_t metas_k_ = 0;  // slots of a query's metas; 0: no metas
  ScoreCut cut_;
  double room_ = 0;  // upper bound of the bytes made so far
  RouteResult out_;
};

}  // namespace

Result<RouteResult> route(const Request& request, const Facts& facts,
                          const RouteInputs& inputs,
                          const RouteSettings& settings,
                          const RouteOptions& options, const Stopped& stopped) {
  try {
    return Router(request, inputs, settings, options, stopped).run(facts);
  } catch (const std::bad_alloc&) {
    return over_limit("route",
                      "working memory must be there, found none left for [{}, "
                      "{}] queries of {} keys",
                      request.batch, request.q_len, request.kv_len);
  }
}

}  // namespace tessera::routing

namespace tessera {

Result<RouteResult> route(const Request& request, const Facts& facts,
                          const RouteInputs& inputs,
                          const RouteSettings& settings,
                          const RouteOptions& options) {
  return routing::route(request, facts, inputs, settings, options, {});
}

}  // namespace tessera
