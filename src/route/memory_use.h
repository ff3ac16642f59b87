// route/memory_use.h: the memory that routing needs, computed before it is
// allocated, and the split of scoring into jobs that keeps it small.
#pragma once

#include <cstdint>
#include <vector>

#include "route/legality.h"
#include "route/rows.h"
#include "tessera/route.h"

namespace tessera::routing {

// The sizes of q and k.
struct RouteShape {
  int64_t heads = 1;
  int64_t kv_heads = 1;
  int64_t dim = 64;
};

// The number of heads that pick.
int64_t heads_of(RouteRule rule, const RouteShape& shape);

// The number of threads; if `asked` is 0, every core this process may use.
int route_threads(int asked);

// Scoring is split into jobs of adjacent queries of a tile. The scores of one
// group of jobs are held at a time.
struct ScoreCut {
  int64_t queries = 1;  // queries of a job
  int64_t parts = 1;    // jobs of a tile and head
  int64_t group = 1;    // jobs at once
  int64_t scores = 0;   // scores of a job: blocks and metas, at most
};
// `metas`: how many a query keeps; 0 without hierarchical routing.
ScoreCut score_cut(const Request& request, const std::vector<RouteRow>& rows,
                   const RouteSettings& settings, int64_t metas, int threads);

// The number of metas (groups of blocks) that a query keeps, at most all.
int64_t metas_kept(const Request& request, const RouteSettings& settings);

// Bytes of picks with their slots and unions, an upper bound.
double pick_bytes(const PickSizes& sizes, int64_t query_tile);

// Bytes of all that routing makes of q and k: pooled keys, scores, picks. Run
// picks of the union meaning are not included: they are as wide as the widest
// union, which is known only after picking.
double route_bytes(const Request& request, const std::vector<RouteRow>& rows,
                   const RouteSettings& settings, const RouteShape& shape,
                   int threads);

}  // namespace tessera::routing
