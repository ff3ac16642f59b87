// plan/check_plan.cc: tests every pair against the mask's definition.
#include "plan/check_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <vector>

namespace tessera::plan {
namespace {

constexpr const char* kClassNames[] = {"empty", "partial", "full"};

TileClass brute_force(const Legality& legality, const Plan& plan, int64_t b,
                      int64_t h, int64_t row, int64_t column, PlanCheck& out) {
  const int64_t q1 = std::min((row + 1) * plan.tile.q, plan.q_len);
  const int64_t k1 = std::min((column + 1) * plan.tile.kv, plan.kv_len);
  int64_t legal = 0;
  int64_t real = 0;
  for (int64_t q = row * plan.tile.q; q < q1; ++q) {
    for (int64_t k = column * plan.tile.kv; k < k1; ++k) {
      legal += legality.legal(b, h, q, k);
      ++real;
    }
  }
  out.pairs += real;
  ++out.tiles;
  if (legal == 0) return TileClass::empty;
  return legal == real ? TileClass::full : TileClass::partial;
}

void check_row(const Legality& legality, const Plan& plan, int64_t b, int64_t h,
               int64_t row, PlanCheck& out) {
  const auto entries = plan.forward.row(plan.list(b, h), row);
  size_t next = 0;
  for (int64_t c = 0; c < plan.forward.columns; ++c) {
    TileClass planned = TileClass::empty;
    if (next < entries.size() && entries[next].column() == c) {
      planned = entries[next++].tile_class();
    }
    const TileClass truth = brute_force(legality, plan, b, h, row, c, out);
    if (planned == truth) continue;
    if (out.wrong++ == 0) {
      out.first_wrong = fmt::format(
          "batch row {}, head {}, tile row {}, column {} is {}, planned {}", b,
          h, row, c, kClassNames[static_cast<int>(truth)],
          kClassNames[static_cast<int>(planned)]);
    }
  }
  if (next != entries.size() && out.wrong++ == 0) {
    out.first_wrong = fmt::format(
        "batch row {}, head {}, tile row {} lists a column out of order", b, h,
        row);
  }
}

// The rows to check: all, or a seeded sample of each list.
std::vector<int64_t> rows_to_check(const Plan& plan, int64_t sample,
                                   std::mt19937_64& engine) {
  std::vector<int64_t> rows(static_cast<size_t>(plan.forward.rows));
  for (size_t r = 0; r < rows.size(); ++r) rows[r] = static_cast<int64_t>(r);
  if (sample > 0 && sample < plan.forward.rows) {
    std::shuffle(rows.begin(), rows.end(), engine);
    rows.resize(static_cast<size_t>(sample));
    std::sort(rows.begin(), rows.end());
  }
  return rows;
}

}  // namespace

PlanCheck check_plan(const Legality& legality, const Plan& plan, int64_t sample,
                     uint64_t seed,
                     const std::function<void(int64_t)>& progress) {
  std::mt19937_64 engine(seed);
  PlanCheck out;
  for (int64_t l = 0; l < plan.forward.lists; ++l) {
    for (const int64_t r : rows_to_check(plan, sample, engine)) {
      check_row(legality, plan, l / plan.heads, l % plan.heads, r, out);
      if (progress) progress(out.pairs);
    }
  }
  out.transposed_agrees = transpose(plan.transposed) == plan.forward;
  return out;
}

}  // namespace tessera::plan
