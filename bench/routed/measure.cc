// bench/routed/measure.cc: measures batches of one length in turn, and routing
// alone at growing lengths.
#include "bench/routed/measure.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/turns.h"
#include "bench/routed/case.h"
#include "bench/routed/peer.h"
#include "cli/machine.h"
#include "cli/progress.h"
#include "route/settings.h"

namespace tessera::bench {

using cli::OtherCores;
using cli::Progress;

namespace {

// Above this length dense attention is timed on one head.
constexpr int64_t kMaxDenseTokens = 65536;
// The number of picks whose plan comes nearest to the density, on the case's
// batch. Density grows with it.
Result<int64_t> find_top(const RoutedCase& c, double wanted) {
  const int64_t rows = c.tokens() / kRoutedBlock;
  const double tiles =
      static_cast<double>(rows) * static_cast<double>(rows + 1) / 2;
  // A first guess: the union of a row is its picks, of r + 1 blocks in row r.
  int64_t top = 1;
  const auto tiles_of = [&](int64_t n) {
    return static_cast<double>(n) * static_cast<double>(rows) -
           static_cast<double>(n) * static_cast<double>(n - 1) / 2;
  };
  const int64_t most = std::min(rows, routing::kMaxTop);
  while (top < most && tiles_of(top) < wanted * tiles) ++top;
  std::optional<double> above, below;  // densities of top + 1 and top - 1
  while (true) {
    auto run = c.route(top, false);
    if (!run) return run.error();
    const double found = c.density(*run);
    if (found > wanted) {
      if (below) return wanted - *below < found - wanted ? top - 1 : top;
      if (top == 1) return top;
      above = found;
      --top;
    } else {
      if (above) return *above - wanted < wanted - found ? top + 1 : top;
      if (top == most) return top;
      below = found;
      ++top;
    }
  }
}

void add(const RouteRecall& more, RouteRecall& to) {
  to.picks += more.picks;
  to.found += more.found;
  to.worst = std::min(to.worst, more.worst);
}

// Fills in the table's figures of the first batch, with the peer's run.
Result<void> describe_first(RoutedCase& c, const RoutedRun& run,
                            const RoutedSettings& s, RoutedTable& t) {
  t.counts = run.routed().counts;
  t.widest = run.routed().unions.widest;
  t.tiles = static_cast<int64_t>(run.plan().forward.entries.size());
  t.full_tiles = std::count_if(
      run.plan().forward.entries.begin(), run.plan().forward.entries.end(),
      [](Entry e) { return e.tile_class() == TileClass::full; });
  t.causal_tiles = c.causal_tiles(run);
  const auto n = static_cast<double>(t.tokens);
  t.causal_pairs = n * (n + 1) / 2 * static_cast<double>(t.heads);
  for (const int64_t pairs : run.plan().legal_pairs) {
    t.pairs += static_cast<double>(pairs);
  }
  auto verdict = c.judge(run);
  if (!verdict) return verdict.error();
  t.check = std::move(*verdict);
  if (!s.peer.folder.empty()) {
    Progress progress(fmt::format("PyTorch, {} tokens", t.tokens));
    t.peer = run_routed_peer(s.peer, c.data(), run);
  }
  return {};
}

// The runs that take turns over a table's batches, one batch in each round.
class RoutedTurns {
 public:
  RoutedTurns(RoutedCase& c, const RoutedSettings& s, RoutedTable& t)
      : case_(c), settings_(s), table_(t) {}

  // A whole call on the next batch.
  Result<RoutedTimes> exhaustive() {
    const int64_t batch = batches_++;
    run_.reset();  // frees its lists before the next ones are made
    if (batch > 0) case_.draw(batch);
    auto run = case_.route(table_.top, false);
    if (!run) return run.error();
    run_ = std::move(*run);
    if (auto e = case_.attend(*run_); !e) return e.error();
    auto key = case_.contract(*run_, table_.top);
    if (!key) return key.error();
    table_.contracts.insert(std::move(*key));
    if (batch == 0) {
      auto told = describe_first(case_, *run_, settings_, table_);
      if (!told) return told.error();
    }
    return run_->times;
  }

  // Hierarchical routing of the same batch.
  Result<RoutedTimes> hierarchical() {
    auto few = case_.route(table_.top, true);
    if (!few) return few.error();
    table_.hierarchical_tiles =
        static_cast<int64_t>(few->plan().forward.entries.size());
    auto recall = route_recall(few->routed(), run_->routed());
    if (!recall) return recall.error();
    add(*recall, table_.recall);
    return few->times;
  }

  // Dense attention on the same batch; the other times are 0.
  Result<RoutedTimes> dense() {
    auto ms = case_.dense(table_.dense_heads);
    if (!ms) return ms.error();
    RoutedTimes times;
    times.attention = *ms;
    return times;
  }

 private:
  RoutedCase& case_;
  const RoutedSettings& settings_;
  RoutedTable& table_;
  std::optional<RoutedRun> run_;  // the whole call of this round
  int64_t batches_ = 0;
};

}  // namespace

Result<RoutedTable> measure(int64_t tokens, Dtype dtype,
                            const RoutedSettings& s) {
  RoutedTable t;
  t.tokens = tokens;
  t.dtype = dtype;
  t.heads = s.sizes.shape.heads;
  t.dense_heads =
      s.dense_heads.value_or(tokens > kMaxDenseTokens ? 1 : t.heads);
  RoutedSizes sizes = s.sizes;
  sizes.dtype = dtype;
  auto made = RoutedCase::make(sizes, tokens, true);
  if (!made) return made.error();
  RoutedCase& c = *made;
  c.draw(0);
  t.inputs = c.clusters(0).describe();
  const OtherCores others;
  {
    // Also warms up: starts the threads and touches the memory.
    Progress progress(fmt::format("{} tokens", tokens));
    auto top = s.top ? *s.top : find_top(c, s.density);
    if (!top) return top.error();
    t.top = *top;
    auto warm = c.route(t.top, false);
    if (!warm) return warm.error();
    if (auto e = c.attend(*warm); !e) return e.error();
  }
  RoutedTurns turns(c, s, t);
  auto times = take_turns<RoutedTimes>(
      just(s.rounds),
      {[&] { return turns.exhaustive(); }, [&] { return turns.hierarchical(); },
       [&] { return turns.dense(); }});
  if (!times) return times.error();
  t.exhaustive = std::move((*times)[0]);
  t.hierarchical = std::move((*times)[1]);
  for (const RoutedTimes& dense : (*times)[2]) {
    t.dense_ms.push_back(dense.attention);
  }
  t.other_cores = others.so_far();
  return t;
}

Result<RoutedGrowth> measure_growth(const RoutedSettings& s, int64_t top) {
  RoutedGrowth growth;
  growth.dtype = s.sizes.dtype;
  growth.top = top;
  RoutedSizes sizes = s.sizes;
  sizes.meaning = RouteMeaning::tile_union;
  for (const int32_t tokens : s.growth) {
    Progress progress(fmt::format("routing of {} tokens", tokens));
    auto made = RoutedCase::make(sizes, tokens, false);
    if (!made) return made.error();
    RoutedCase& c = *made;
    c.draw(0);
    for (const bool hierarchical : {false, true}) {
      auto runs = repeat<RoutedTimes>(just(s.rounds, /*warm_up=*/1),
                                      [&]() -> Result<RoutedTimes> {
                                        auto run = c.route(top, hierarchical);
                                        if (!run) return run.error();
                                        return run->times;
                                      });
      if (!runs) return runs.error();
      growth.rows.push_back({tokens, hierarchical, median_of(*runs)});
    }
  }
  return growth;
}

}  // namespace tessera::bench
