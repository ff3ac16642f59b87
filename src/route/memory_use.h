// route/memory_use.h: the memory that routing takes, told before it is taken,
// and how scoring is cut so that it takes little.
#pragma once

#include <cstdint>
#include <vector>

#include "route/legality.h"
#include "route/rows.h"
#include "tessera/route.h"

namespace tessera::routing {

// Of q and k.
struct RouteShape {
  int64_t heads = 1;
  int64_t kv_heads = 1;
  int64_t dim = 64;
};

// Heads that pick.
int64_t heads_of(RouteRule rule, const RouteShape& shape);

// 0: every core this process may use.
int route_threads(int asked);

// Scoring is cut into jobs of neighbouring queries of a tile, of which groups
// wait to be chosen from.
struct ScoreCut {
  int64_t queries = 1;  // of a job; the whole tile by the query-tile rule
  int64_t parts = 1;    // jobs of a tile and head
  int64_t group = 1;    // jobs at once
  int64_t scores = 0;   // of a job: blocks and metas, at most
};
// `metas` are what a query keeps of them, 0 without.
ScoreCut score_cut(const Request& request, const std::vector<RouteRow>& rows,
                   const RouteSettings& settings, int64_t metas, int threads);

// Groups that a query keeps: no more than there are.
int64_t metas_kept(const Request& request, const RouteSettings& settings);

// Bytes of picks with their slots and unions, at most.
double pick_bytes(const PickSizes& sizes, int64_t query_tile);

// Bytes of all that routing makes of q and k: pooled keys, scores, picks. Run
// picks of the union meaning are as wide as the widest union, which only the
// picks tell: they are not among it.
double route_bytes(const Request& request, const std::vector<RouteRow>& rows,
                   const RouteSettings& settings, const RouteShape& shape,
                   int threads);

}  // namespace tessera::routing
