// route/expand.cc: unions become picks, phases and facts.
#include "route/expand.h"

#include <algorithm>

#include "base/fail.h"
#include "base/integers.h"
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

Result<std::vector<uint8_t>> dense_picks(const RouteResult& result,
                                         int64_t q_len, int64_t kv_len,
                                         int64_t batch_row, int64_t head) {
  constexpr int64_t kMaxBytes = int64_t{1} << 30;
  const auto values = static_cast<int64_t>(result.picks.size());
  if (q_len < 1 || kv_len < 1 || batch_row < 0 || head < 0 ||
      head >= result.heads || result.k < 1 ||
      batch_row >= values / result.k / q_len / result.heads) {
    return invalid("route",
                   "a view must be of a list of the picks, found batch row {} "
                   "and head {} of {} queries",
                   batch_row, head, q_len);
  }
  const int64_t list = batch_row * result.heads + head;
  const int64_t blocks = ceil_div(kv_len, result.settings.block);
  if (blocks > kMaxBytes / q_len) {
    return over_limit("route",
                      "a view must be at most {} bytes, found {} queries of "
                      "{} blocks",
                      kMaxBytes, q_len, blocks);
  }
  std::vector<uint8_t> out(static_cast<size_t>(q_len * blocks), 0);
  for (int64_t q = 0; q < q_len; ++q) {
    const int32_t* of = result.picks.data() + (list * q_len + q) * result.k;
    for (int64_t i = 0; i < result.k; ++i) {
      if (of[i] >= 0 && of[i] < blocks) {
        out[static_cast<size_t>(q * blocks + of[i])] = 1;
      }
    }
  }
  return out;
}

}  // namespace tessera
