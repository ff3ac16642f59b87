// route/expand.cc: turns unions into picks, phases and facts.
#include "route/expand.h"

#include <algorithm>

#include "route/tasks.h"

namespace tessera {

std::vector<int32_t> routing::expand_unions(const routing::PickSizes& s,
                                            const PickUnions& unions,
                                            int64_t query_tile, int threads) {
  const int64_t k = std::max<int64_t>(unions.widest, 1);
  std::vector<int32_t> out(
      static_cast<size_t>(s.batch * s.heads * s.q_len * k));
  const auto work = [&](int64_t row, int) {
    const int64_t begin = row % unions.tiles * query_tile;
    const int64_t end = std::min(s.q_len, begin + query_tile);
    const auto from = unions.row(row);
    int32_t* to = out.data() + (row / unions.tiles * s.q_len + begin) * k;
    for (int64_t q = begin; q < end; ++q, to += k) {
      std::copy(from.begin(), from.end(), to);
      std::fill(to + from.size(), to + k, -1);
    }
  };
  routing::run_tasks(s.batch * s.heads * unions.tiles, threads, work, "expand");
  return out;
}

Facts RouteResult::facts(const Facts& others) const {
  Facts out = others;
  const bool own = run_picks.empty();
  out.picks = Picks{own ? picks : run_picks, heads, own ? k : run_k,
                    settings.meaning, settings.query_tile};
  return out;
}

}  // namespace tessera
