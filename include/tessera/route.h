// tessera/route.h: the router of clustered sparse attention, which picks the
// blocks of keys that each query may attend to.
//
//   auto batch = OwnedBatch::route(request, facts, {.q = q, .k = k}, settings);
//   use(batch->plan(), batch->routing()->counts);
//
// The stages run in this order; docs/routing.md defines them exactly:
//   pool, window, (coarse,) score, top_n, legality, union, expand.
// Picks are arrays of integers, so no gradient flows through the router. They
// are the same for any number of threads and on every machine.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/attention.h"
#include "tessera/facts.h"
#include "tessera/machine.h"
#include "tessera/plan.h"
#include "tessera/result.h"

namespace tessera {

// Which queries share picks. kv_head: the query heads of a KV head together, by
// their scores summed in head order. query_head: every query head alone.
// query_tile: the queries of one document in a query tile together, by their
// mean.
enum class RouteRule : uint8_t { kv_head, query_head, query_tile };
std::string_view to_string(RouteRule rule);  // "kv-head"

// How a union is computed; the results are equal.
enum class UnionMethod : uint8_t { bitmap, sort };
std::string_view to_string(UnionMethod method);
Result<UnionMethod> parse_union_method(std::string_view text);

// Sizes are in tokens. `stride` must divide `block` and `kv_tile`,
// `compression` must be at most `block`, and `top` at least the number of
// forced blocks.
struct RouteSettings {
  RouteRule rule = RouteRule::kv_head;
  int64_t top = 8;            // blocks that a query picks, forced ones included
  int64_t block = 256;        // keys of a block
  int64_t compression = 128;  // keys that are pooled to one key
  int64_t stride = 64;        // from one compression block to the next
  int64_t query_tile = 256;   // queries that share a union
  int64_t kv_tile = 1024;     // keys of a routing tile
  int64_t sink_blocks = 0;    // first blocks, forced besides a query's own
  // Scores groups of `meta_ratio` blocks first, then only the blocks of the
  // best groups.
  bool hierarchical = false;
  int64_t meta_ratio = 8;
  int64_t top_metas = 16;  // groups that a query keeps, or all if fewer
  // Does not score routing tiles from the future. False scores them too, which
  // changes no pick.
  bool windowed = true;
  // Illegal picks in RouteInputs are an error; false removes and counts them. A
  // pick of a tile is illegal if no query of the tile may attend to it.
  bool strict = false;
  UnionMethod union_method = UnionMethod::bitmap;
  RouteMeaning meaning = RouteMeaning::exact;

  bool operator==(const RouteSettings&) const = default;
};

// The settings of MoBA: one pooled key per block, every query head alone.
RouteSettings moba_settings(int64_t top, int64_t block);

// `settings` with `top` and `block` from the mask's routed(top, block), or
// `block` from its blocks(n). An error if the masks name neither, or two that
// differ.
Result<RouteSettings> settings_of(const Request& request,
                                  RouteSettings settings);

// q and k, or picks of another router, which enter before one of the stages.
struct RouteInputs {
  std::optional<TensorView> q = {};  // [batch, heads, q_len, dim]
  std::optional<TensorView> k = {};  // [batch, kv_heads, kv_len, dim]
  // Picks of each query, [batch, heads, q_len, k]; they enter before legality.
  std::optional<Picks> picks = {};
  // Picks of each query tile, [batch, heads, tiles, k], which its queries
  // share; they enter before legality.
  std::optional<Picks> tile_picks = {};
  // Groups of blocks of each query, used with q and k; they enter before the
  // blocks of groups are scored.
  std::optional<Picks> metas = {};
};

enum class RouteStage : uint8_t {
  pool,
  window,
  coarse,  // hierarchical only: scores and chooses groups of blocks
  score,   // scores all blocks, or those of the chosen groups
  top_n,
  legality,
  unions,
  expand
};
std::string_view to_string(RouteStage stage);  // "union"
inline constexpr int kRouteStages = 8;

struct RouteOptions {
  int threads = 0;         // 0: every core this process may use
  std::optional<Isa> isa;  // as in CpuOptions; picks do not depend on it
  // Called on the calling thread whenever some work of a stage ends. Stages may
  // alternate, so the time of a stage is the sum of the times before its calls.
  std::function<void(RouteStage)> after;
  // The last stage that runs; results of later stages stay empty.
  RouteStage until = RouteStage::expand;
  // The most bytes that the router may allocate. A need for more is an error,
  // which is returned before they are allocated.
  int64_t memory = std::numeric_limits<int64_t>::max();
};

// Counts over all batch rows. Pooled keys and routing tiles are counted once
// for all heads.
struct RouteCounts {
  int64_t pooled_keys = 0;
  int64_t routing_tiles = 0;         // pairs of query tile and routing tile
  int64_t routing_tiles_scored = 0;  // of these: scored
  int64_t scores = 0;  // inner products of a routing query and a pooled key
  int64_t picks = 0;   // picks after legality
  int64_t removed_invalid = 0;
  int64_t removed_documents = 0;  // picks across documents
  int64_t removed_future = 0;
  int64_t union_blocks = 0;  // blocks in the unions of all tile rows
  int64_t tile_rows = 0;     // tile rows of all heads

  bool operator==(const RouteCounts&) const = default;
};

// The union of the picks of each tile row. Tile row r of batch row b and head h
// has number (b * heads + h) * tiles + r.
struct PickUnions {
  int64_t heads = 1;
  int64_t tiles = 0;
  std::vector<int64_t> start;   // batch * heads * tiles + 1, into blocks
  std::vector<int32_t> blocks;  // ascending within a row
  // [batch, heads, q_len, k]: the index of each pick in its row's union; -1 for
  // an unused slot.
  std::vector<int32_t> slots;
  int64_t widest = 0;
  int64_t capacity = 0;  // the ceiling, or the bucket of `widest`

  std::span<const int32_t> row(int64_t number) const {
    const auto at = static_cast<size_t>(number);
    return {blocks.data() + start[at],
            static_cast<size_t>(start[at + 1] - start[at])};
  }
  bool operator==(const PickUnions&) const = default;
};

// How many of the picks of exhaustive routing another routing found.
struct RouteRecall {
  int64_t picks = 0;   // picks of exhaustive routing
  int64_t found = 0;   // of these: found
  double worst = 1.0;  // the smallest share found for one query

  double recall() const {
    return picks == 0 ? 1.0
                      : static_cast<double>(found) / static_cast<double>(picks);
  }
};

// A phase of clustered attention, and the stages in it.
struct RoutePhase {
  std::string_view name;
  std::string_view stages;
  bool differentiable = false;
};
std::span<const RoutePhase> route_phases();

struct RouteResult {
  RouteSettings settings;
  int64_t heads = 1;           // pick heads: 1, the KV heads or the query heads
  int64_t k = 0;               // slots of a query
  std::vector<int32_t> picks;  // [batch, heads, q_len, k]; ascending, -1 last
  PickUnions unions;
  // The picks that attention uses: [batch, heads, q_len, run_k]. Empty:
  // `picks`.
  std::vector<int32_t> run_picks;
  int64_t run_k = 0;
  RouteCounts counts;
  std::vector<std::string> warnings;

  // `others` with the picks that attention uses, as views of this result.
  Facts facts(const Facts& others) const;
};

// Runs the router. The request's masks determine whether picks may cross
// documents or segments; its tile is not read. The facts must be valid for the
// masks; picks in them are not read.
Result<RouteResult> route(const Request& request, const Facts& facts,
                          const RouteInputs& inputs,
                          const RouteSettings& settings,
                          const RouteOptions& options = {});

// Both results must be of one request, the second of exhaustive routing.
Result<RouteRecall> route_recall(const RouteResult& found,
                                 const RouteResult& exhaustive);

}  // namespace tessera
