// route/top_n.cc: the best blocks so far, in order or in a heap.
#include "route/top_n.h"

#include <algorithm>

namespace tessera {
namespace {

// So few are kept sorted, best first; more in a heap, worst first.
constexpr size_t kSorted = 32;

// The heap's order.
bool better(const ScoredBlock& l, const ScoredBlock& r) {
  return l.score > r.score || (l.score == r.score && l.block < r.block);
}

}  // namespace

void forced_blocks(const RouteRow& row, const RoutingQuery& query,
                   int64_t block, int64_t kv_len, int64_t sinks,
                   std::vector<int32_t>& forced) {
  forced.clear();
  query.each([&](int32_t q) {
    const int64_t position = q + row.q_offset;
    if (position < 0 || position >= kv_len) return;
    const auto own = static_cast<int32_t>(position / block);
    if (forced.empty() || forced.back() != own) forced.push_back(own);
  });
  const auto own = static_cast<std::ptrdiff_t>(forced.size());
  for (const BlockOfDocument& b : row.blocks_of(query.document)) {
    if (sinks-- <= 0 || b.first > query.position) break;
    forced.push_back(b.block);
  }
  std::inplace_merge(forced.begin(), forced.begin() + own, forced.end());
  forced.erase(std::unique(forced.begin(), forced.end()), forced.end());
}

void pick_top(std::span<const float> scores, std::span<const int32_t> blocks,
              std::span<const int32_t> forced, std::vector<ScoredBlock>& best,
              std::span<int32_t> picks) {
  const size_t room = picks.size() - forced.size();
  best.clear();
  size_t next = 0;  // of forced
  for (size_t i = 0; i < scores.size() && room > 0; ++i) {
    // Ascending blocks: an equal score never displaces a lower one.
    const bool heap = room > kSorted;
    const bool full = best.size() == room;
    if (full && !(scores[i] > (heap ? best.front() : best.back()).score)) {
      continue;
    }
    while (next < forced.size() && forced[next] < blocks[i]) ++next;
    if (next < forced.size() && forced[next] == blocks[i]) continue;
    const ScoredBlock one{scores[i], blocks[i]};
    if (heap) {
      if (full) {
        std::pop_heap(best.begin(), best.end(), better);
        best.back() = one;
      } else {
        best.push_back(one);
      }
      std::push_heap(best.begin(), best.end(), better);
      continue;
    }
    if (!full) best.push_back(one);
    size_t at = best.size() - 1;
    for (; at > 0 && one.score > best[at - 1].score; --at) {
      best[at] = best[at - 1];
    }
    best[at] = one;
  }
  size_t at = 0;
  for (const int32_t f : forced) picks[at++] = f;
  for (const ScoredBlock& b : best) picks[at++] = b.block;
  std::sort(picks.begin(), picks.begin() + static_cast<std::ptrdiff_t>(at));
  std::fill(picks.begin() + static_cast<std::ptrdiff_t>(at), picks.end(), -1);
}

}  // namespace tessera
