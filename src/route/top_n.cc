// route/top_n.cc: the best blocks among those above a guess.
#include "route/top_n.h"

#include <algorithm>

namespace tessera::routing {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

// A function object, so that sorting inlines the comparison.
struct Better {
  bool operator()(const ScoredBlock& l, const ScoredBlock& r) const {
    return l.score > r.score || (l.score == r.score && l.block < r.block);
  }
};

// Keeps the blocks that score at least `from`, in order, without forced ones.
void keep(std::span<const float> scores, std::span<const int32_t> blocks,
          std::span<const int32_t> forced, float from,
          std::vector<ScoredBlock>& kept) {
  kept.resize(scores.size());
  size_t n = 0;
  for (size_t i = 0; i < scores.size(); ++i) {
    kept[n] = {scores[i], blocks[i]};
    n += scores[i] >= from;
  }
  size_t next = 0;
  size_t to = 0;
  for (size_t i = 0; i < n; ++i) {
    while (next < forced.size() && forced[next] < kept[i].block) ++next;
    if (next < forced.size() && forced[next] == kept[i].block) continue;
    kept[to++] = kept[i];
  }
  kept.resize(to);
}

// The next query's guess: a little below the worst score kept, so that usually
// few more blocks are kept than picked.
float guess(const std::vector<ScoredBlock>& kept) {
  float least = kept.front().score;
  float most = least;
  for (const ScoredBlock& b : kept) {
    least = std::min(least, b.score);
    most = std::max(most, b.score);
  }
  return least - (most - least) / 8;
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
              std::span<const int32_t> forced, TopScratch& scratch,
              std::span<int32_t> picks) {
  const size_t room = picks.size() - forced.size();
  std::vector<ScoredBlock>& kept = scratch.kept;
  keep(scores, blocks, forced, scratch.from, kept);
  if (kept.size() < room && scratch.from != kLowest) {
    keep(scores, blocks, forced, kLowest, kept);
  }
  scratch.from = kLowest;
  if (kept.size() > room) {
    if (room == 0) {
      kept.clear();
    } else {
      scratch.order = kept;
      const auto last =
          scratch.order.begin() + static_cast<std::ptrdiff_t>(room) - 1;
      std::nth_element(scratch.order.begin(), last, scratch.order.end(),
                       Better());
      const ScoredBlock worst = *last;
      std::erase_if(kept,
                    [&](const ScoredBlock& b) { return Better()(worst, b); });
      scratch.from = guess(kept);
    }
  }
  size_t at = 0;
  size_t next = 0;
  for (const ScoredBlock& b : kept) {
    while (next < forced.size() && forced[next] < b.block) {
      picks[at++] = forced[next++];
    }
    picks[at++] = b.block;
  }
  while (next < forced.size()) picks[at++] = forced[next++];
  std::fill(picks.begin() + static_cast<std::ptrdiff_t>(at), picks.end(), -1);
}

}  // namespace tessera::routing
