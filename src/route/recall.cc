// route/recall.cc: the share of exhaustive routing's picks that were found.
#include <algorithm>

#include "base/fail.h"
#include "tessera/route.h"

namespace tessera {

Result<RouteRecall> route_recall(const RouteResult& found,
                                 const RouteResult& exhaustive) {
  const auto queries_of = [](const RouteResult& r) {
    return r.k > 0 ? r.picks.size() / static_cast<size_t>(r.k) : 0;
  };
  const size_t queries = queries_of(found);
  if (queries == 0 || queries != queries_of(exhaustive) ||
      found.heads != exhaustive.heads ||
      found.settings.block != exhaustive.settings.block) {
    return invalid("route",
                   "recall must be of two results of one request, found {} "
                   "and {} queries",
                   queries, queries_of(exhaustive));
  }
  RouteRecall out;
  for (size_t q = 0; q < queries; ++q) {
    const auto row = [&](const RouteResult& r) {
      const auto k = static_cast<size_t>(r.k);
      return std::span(r.picks).subspan(q * k, k);
    };
    int64_t picks = 0;
    int64_t hits = 0;
    const auto in = row(found);  // both rows ascend
    auto at = in.begin();
    for (const int32_t p : row(exhaustive)) {
      if (p < 0) break;
      ++picks;
      while (at != in.end() && *at >= 0 && *at < p) ++at;
      hits += at != in.end() && *at == p;
    }
    if (picks == 0) continue;
    out.picks += picks;
    out.found += hits;
    out.worst = std::min(
        out.worst, static_cast<double>(hits) / static_cast<double>(picks));
  }
  return out;
}

}  // namespace tessera
