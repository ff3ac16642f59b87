// tessera/route.h: the router of clustered sparse attention: which blocks of
// keys each query may attend to.
//
//   auto batch = OwnedBatch::route(request, facts, {.q = q, .k = k}, settings);
//   use(batch->plan(), batch->routing()->counts);
//
// The stages run in this order; docs/routing.md has their exact meanings:
//   pool, window, (coarse,) score, top_n, legality, union, expand.
// Picks are arrays of integers: no gradient flows through any of it. They are
// the same for any number of threads and on every machine.
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

// Who picks: kv_head, the query heads of a KV head together, by their scores
// summed in head order; query_head, every query head alone; query_tile, the
// queries of one document in a query tile together, by their mean.
enum class RouteRule : uint8_t { kv_head, query_head, query_tile };
std::string_view to_string(RouteRule rule);  // "kv-head"

// How a union is found; the results are equal.
enum class UnionMethod : uint8_t { bitmap, sort };
std::string_view to_string(UnionMethod method);
Result<UnionMethod> parse_union_method(std::string_view text);

// Sizes are in tokens. `stride` divides `block` and `kv_tile`, `compression` is
// at most `block`, and the forced blocks fit `top`.
struct RouteSettings {
  RouteRule rule = RouteRule::kv_head;
  int64_t top = 8;            // blocks that a query picks, forced ones included
  int64_t block = 256;        // of keys: what is picked
  int64_t compression = 128;  // keys that are pooled to one
  int64_t stride = 64;        // from one compression block to the next
  int64_t query_tile = 256;   // queries that share a union
  int64_t kv_tile = 1024;     // keys of a routing tile
  int64_t sink_blocks = 0;    // first blocks that are forced, beside the own
  // Scores groups of `meta_ratio` blocks first, then the blocks of the best.
  bool hierarchical = false;
  int64_t meta_ratio = 8;
  int64_t top_metas = 16;  // groups that a query keeps, of those there are
  // Routing tiles from the future are not scored. Off: they are scored, but no
  // pick changes.
  bool windowed = true;
  // Given picks that are illegal are an error; otherwise they are removed and
  // counted. A tile's pick is illegal if no query of the tile may follow it.
  bool strict = false;
  UnionMethod union_method = UnionMethod::bitmap;
  RouteMeaning meaning = RouteMeaning::exact;

  bool operator==(const RouteSettings&) const = default;
};

// MoBA's rule: one pooled key a block, every query head alone.
RouteSettings moba_settings(int64_t top, int64_t block);

// `settings` with top and block of the mask's routed(...), or block of its
// blocks(...). Masks that name neither, or two that differ, are an error.
Result<RouteSettings> settings_of(const Request& request,
                                  RouteSettings settings);

// q and k, or picks of another router. Each kind of picks enters at its stage.
struct RouteInputs {
  std::optional<TensorView> q = {};  // [batch, heads, q_len, dim]
  std::optional<TensorView> k = {};  // [batch, kv_heads, kv_len, dim]
  // Enter before legality: of each query, [batch, heads, q_len, k].
  std::optional<Picks> picks = {};
  // The same for each query tile, [batch, heads, tiles, k]: its queries share
  // them.
  std::optional<Picks> tile_picks = {};
  // Enter before the blocks of groups are scored, with q and k: groups of
  // blocks of each query.
  std::optional<Picks> metas = {};
};

enum class RouteStage : uint8_t {
  pool,
  window,
  coarse,  // hierarchical: groups of blocks, scored and chosen
  score,   // every block, or those of the chosen groups
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
  // Called from the calling thread whenever work of a stage ends. Stages may
  // take turns: add up the times between calls to get the time of each stage.
  std::function<void(RouteStage)> after;
  // The last stage that runs; what later ones would fill stays empty.
  RouteStage until = RouteStage::expand;
  // The most bytes that it may take beside its inputs. More is an error, before
  // the work that would take them.
  int64_t memory = std::numeric_limits<int64_t>::max();
};

// Over all batch rows. Pooled keys and routing tiles are counted once for all
// heads.
struct RouteCounts {
  int64_t pooled_keys = 0;
  int64_t routing_tiles = 0;         // query tiles x routing tiles
  int64_t routing_tiles_scored = 0;  // those that are not from the future
  int64_t scores = 0;  // inner products of a routing query and a pooled key
  int64_t picks = 0;   // that legality left
  int64_t removed_invalid = 0;
  int64_t removed_documents = 0;  // across documents
  int64_t removed_future = 0;
  int64_t union_blocks = 0;  // over all tile rows
  int64_t tile_rows = 0;     // of all heads

  bool operator==(const RouteCounts&) const = default;
};

// The union of each tile row. Row r of (batch row b, head h) is number
// (b * heads + h) * tiles + r.
struct PickUnions {
  int64_t heads = 1;
  int64_t tiles = 0;
  std::vector<int64_t> start;   // batch * heads * tiles + 1, into blocks
  std::vector<int32_t> blocks;  // ascending within a row
  // [batch, heads, q_len, k]: where each pick stands in its row's union; -1
  // where there is no pick.
  std::vector<int32_t> slots;
  int64_t widest = 0;
  int64_t capacity = 0;  // its class: the ceiling, or the bucket of `widest`

  std::span<const int32_t> row(int64_t number) const {
    const auto at = static_cast<size_t>(number);
    return {blocks.data() + start[at],
            static_cast<size_t>(start[at + 1] - start[at])};
  }
  bool operator==(const PickUnions&) const = default;
};

// How many picks of exhaustive routing hierarchical routing found.
struct RouteRecall {
  int64_t picks = 0;   // of exhaustive routing
  int64_t found = 0;   // of these
  double worst = 1.0;  // least share of one query

  double recall() const {
    return picks == 0 ? 1.0
                      : static_cast<double>(found) / static_cast<double>(picks);
  }
};

// A phase of the whole operation, in order.
struct RoutePhase {
  std::string_view name;
  std::string_view stages;
  bool differentiable = false;
};
std::span<const RoutePhase> route_phases();

struct RouteResult {
  RouteSettings settings;
  int64_t heads = 1;           // that pick: 1, the KV heads or the query heads
  int64_t k = 0;               // slots of a query
  std::vector<int32_t> picks;  // [batch, heads, q_len, k]; ascending, -1 last
  PickUnions unions;
  // The picks that attention runs on: [batch, heads, q_len, run_k]. Empty where
  // they are `picks` itself.
  std::vector<int32_t> run_picks;
  int64_t run_k = 0;
  RouteCounts counts;
  std::vector<std::string> warnings;

  // `facts` with the picks to run on: views of this result.
  Facts facts(const Facts& others) const;
};

// The request's masks say whether documents or segments part the keys; its tile
// is not read. The facts must be valid for these masks; picks in them are not
// read.
Result<RouteResult> route(const Request& request, const Facts& facts,
                          const RouteInputs& inputs,
                          const RouteSettings& settings,
                          const RouteOptions& options = {});

// Both results must be of one request, the second by exhaustive routing.
Result<RouteRecall> route_recall(const RouteResult& found,
                                 const RouteResult& exhaustive);

}  // namespace tessera
