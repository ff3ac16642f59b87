// plan/plan.cc: turns classified tile rows into worklists.
#include <algorithm>

#include "base/fail.h"
#include "base/trace.h"
#include "plan/make_plan.h"
#include "plan/stoppable.h"
#include "plan/transpose.h"

namespace tessera::plan {
namespace {

Error too_many_tiles() {
  return over_limit("plan",
                    "a plan holds at most {} active tiles, found more (use a "
                    "larger tile or fewer batch rows)",
                    kMaxTiles);
}

void append(const std::vector<mask::Span>& spans, std::vector<Entry>& entries) {
  for (const mask::Span& s : spans) {
    const size_t at = entries.size();
    entries.resize(at + static_cast<size_t>(s.end - s.begin));
    Entry* out = entries.data() + at;
    for (int32_t c = s.begin; c < s.end; ++c) {
      *out++ = Entry::of(c, s.tile_class);
    }
  }
}

// Tile rows between two calls of `stopped`.
constexpr size_t kRowsUnasked = 64;

// Classifies every tile row and fills the empty forward lists.
Result<void> fill_forward(const mask::Sweep& sweep, Plan& plan,
                          const Stopped& stopped) {
  const TraceSpan span("plan", "classify");
  Worklist& w = plan.forward;
  return sweep.each_list(
      [&](mask::Classifier& list, int64_t b, int64_t h) -> Result<void> {
        int64_t pairs = 0;
        for (int64_t r = 0; r < w.rows; ++r) {
          if (stopped && w.row_start.size() % kRowsUnasked == 0 && stopped()) {
            return stopped_error(
                "plan", fmt::format("after {} of {} tile rows",
                                    w.row_start.size() - 1, w.lists * w.rows));
          }
          const std::vector<mask::Span>& spans = list.tile_row(r);
          int64_t tiles = static_cast<int64_t>(w.entries.size());
          for (const mask::Span& s : spans) {
            tiles += s.end - s.begin;
            pairs += s.pairs * (s.end - s.begin);
          }
          if (tiles > kMaxTiles) return too_many_tiles();
          append(spans, w.entries);
          w.row_start.push_back(static_cast<uint32_t>(tiles));
        }
        plan.legal_pairs[static_cast<size_t>(plan.list(b, h))] = pairs;
        return {};
      });
}

}  // namespace

Result<void> plan_sweep(const mask::Sweep& sweep, Plan& plan,
                        const Stopped& stopped) {
  const TraceSpan span("plan", "make_plan");
  const mask::Bound& bound = sweep.bound;
  plan.batch = bound.batch;
  plan.heads = bound.heads;
  plan.q_len = bound.q_len;
  plan.kv_len = bound.kv_len;
  plan.tile = bound.tile;
  plan.meaning = bound.meaning;
  plan.warnings = bound.warnings;
  Worklist& w = plan.forward;
  w.lists = sweep.lists();
  w.rows = sweep.rows();
  w.columns = sweep.columns();
  // Row starts are 32 bits, and each list has row starts even without tiles.
  int64_t starts = 0;
  if (__builtin_mul_overflow(w.lists, std::max(w.rows, w.columns), &starts) ||
      starts > kMaxTiles) {
    return over_limit("plan",
                      "tile rows over all lists must be at most {}, found {} "
                      "lists of {}",
                      kMaxTiles, w.lists, std::max(w.rows, w.columns));
  }
  w.row_start.clear();
  w.row_start.reserve(static_cast<size_t>(w.lists * w.rows + 1));
  w.row_start.push_back(0);
  w.entries.clear();
  plan.legal_pairs.assign(static_cast<size_t>(w.lists), 0);

  if (auto e = fill_forward(sweep, plan, stopped); !e) return e;
  const TraceSpan transposing("plan", "transpose");
  plan::transpose(plan.forward, plan.transposed);
  return {};
}

Result<void> plan_sweep(const mask::Sweep& sweep, Plan& plan) {
  return plan_sweep(sweep, plan, {});
}

Result<Plan> make_plan(const Request& request, const Facts& facts) {
  auto sweep = mask::start_sweep(request, facts);
  if (!sweep) return sweep.error();
  Plan plan;
  if (auto e = plan_sweep(*sweep, plan); !e) return e.error();
  return plan;
}

}  // namespace tessera::plan
