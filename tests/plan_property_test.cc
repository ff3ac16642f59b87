// tests/plan_property_test.cc: random requests are planned, and the oracle
// judges the plans token by token. TESSERA_SEED sets the first seed and
// TESSERA_CASES the number of cases.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "plan/make_plan.h"
#include "tessera/plan.h"
#include "tests/hold_for_all.h"
#include "tests/oracle.h"
#include "tests/random_case.h"

namespace tessera::testing {
namespace {

template <class... Parts>
std::string text(const Parts&... parts) {
  std::string out;
  const auto add = [&out](const auto& part) {
    if constexpr (std::is_arithmetic_v<std::decay_t<decltype(part)>>) {
      out += std::to_string(part);
    } else {
      out += part;
    }
  };
  (add(parts), ...);
  return out;
}

// Checks that row starts rise to the number of entries, that columns ascend
// within the grid, and that no tile is listed as empty.
Fault worklist_fault(const Worklist& w, const char* name, int64_t lists,
                     int64_t rows, int64_t columns) {
  if (w.lists != lists || w.rows != rows || w.columns != columns) {
    return text(name, " has ", w.lists, " lists of ", w.rows, " rows and ",
                w.columns, " columns, not ", lists, ", ", rows, ", ", columns);
  }
  if (w.row_start.size() != static_cast<size_t>(lists * rows + 1)) {
    return text(name, " has ", w.row_start.size(), " row starts");
  }
  if (w.row_start[0] != 0 || w.row_start.back() != w.entries.size()) {
    return text(name, " row starts do not span the entries");
  }
  for (size_t r = 1; r < w.row_start.size(); ++r) {
    if (w.row_start[r] < w.row_start[r - 1]) {
      return text(name, " row starts fall at ", r);
    }
    int64_t before = -1;
    for (size_t at = w.row_start[r - 1]; at < w.row_start[r]; ++at) {
      const Entry entry = w.entries[at];
      const auto c = static_cast<int>(entry.tile_class());
      if (entry.column() <= before || entry.column() >= columns) {
        return text(name, " row ", r - 1, " lists column ", entry.column(),
                    " after ", before);
      }
      if (c != 1 && c != 2) {
        return text(name, " row ", r - 1, " lists a tile of class ", c);
      }
      before = entry.column();
    }
  }
  return std::nullopt;
}

// The list as a dense grid of classes, 0 where no tile is listed.
std::vector<int> dense_of(const Worklist& w, int64_t list) {
  std::vector<int> dense(static_cast<size_t>(w.rows * w.columns), 0);
  for (int64_t r = 0; r < w.rows; ++r) {
    for (const Entry entry : w.row(list, r)) {
      dense[static_cast<size_t>(r * w.columns + entry.column())] =
          static_cast<int>(entry.tile_class());
    }
  }
  return dense;
}

Fault plan_fault(const RandomCase& c) {
  const Result<Request> request = c.request();
  if (!request.ok()) return "make_mask refused: " + request.error().message;
  const Facts facts = c.facts();
  const Result<Plan> planned = plan::make_plan(*request, facts);
  if (!planned.ok()) return "make_plan refused: " + planned.error().message;
  const Plan& plan = *planned;
  const Oracle oracle(c.masks, *request, facts);
  if (plan.heads != oracle.heads() || plan.batch != c.batch ||
      plan.q_len != c.q_len || plan.kv_len != c.kv_len || plan.tile != c.tile) {
    return text("the plan has ", plan.heads, " heads and ", plan.batch,
                " batch rows, not ", oracle.heads(), " and ", c.batch);
  }
  const int64_t lists = c.batch * oracle.heads();
  const int64_t rows = (c.q_len + c.tile.q - 1) / c.tile.q;
  const int64_t columns = (c.kv_len + c.tile.kv - 1) / c.tile.kv;
  if (auto f = worklist_fault(plan.forward, "forward", lists, rows, columns)) {
    return f;
  }
  if (auto f =
          worklist_fault(plan.transposed, "transposed", lists, columns, rows)) {
    return f;
  }
  if (plan.legal_pairs.size() != static_cast<size_t>(lists)) {
    return text("legal_pairs has ", plan.legal_pairs.size(), " values");
  }

  size_t warned_rows = 0;
  for (int64_t b = 0; b < c.batch; ++b) {
    bool any_live = false;
    for (int64_t h = 0; h < oracle.heads(); ++h) {
      const int64_t list = plan.list(b, h);
      const DenseClasses dense = oracle.classes(b, h);
      const std::vector<int> forward = dense_of(plan.forward, list);
      const std::vector<int> transposed = dense_of(plan.transposed, list);
      for (int64_t r = 0; r < rows; ++r) {
        for (int64_t col = 0; col < columns; ++col) {
          const int want = static_cast<int>(dense.at(r, col));
          const int got = forward[static_cast<size_t>(r * columns + col)];
          const int back = transposed[static_cast<size_t>(col * rows + r)];
          if (got != want || back != want) {
            return text("batch row ", b, ", head ", h, ", tile (", r, ", ", col,
                        ") is class ", want, ", found ", got, " forward and ",
                        back, " transposed");
          }
        }
      }
      const int64_t pairs = plan.legal_pairs[static_cast<size_t>(list)];
      if (pairs != dense.legal_pairs) {
        return text("batch row ", b, ", head ", h, " has ", dense.legal_pairs,
                    " legal pairs, found ", pairs);
      }
      for (int64_t i = 0; i < c.q_len; ++i) {
        any_live = any_live || !oracle.query_vetoed(b, h, i);
      }
    }
    if (!any_live) ++warned_rows;
  }
  if (plan.warnings.size() != warned_rows) {
    return text(warned_rows, " batch rows have every query vetoed, found ",
                plan.warnings.size(), " warnings");
  }
  if (transpose(plan.forward) != plan.transposed) {
    return "transpose(forward) is not the transposed worklist";
  }
  if (transpose(plan.transposed) != plan.forward) {
    return "transpose(transpose(forward)) is not forward";
  }
  const Result<Plan> again = plan::make_plan(*request, facts);
  if (!again.ok() || *again != plan) return "a second run gave another plan";
  return std::nullopt;
}

Fault legal_fault(const RandomCase& c) {
  const Result<Request> request = c.request();
  if (!request.ok()) return "make_mask refused: " + request.error().message;
  const Facts facts = c.facts();
  const Result<Legality> legality = Legality::bind(*request, facts);
  if (!legality.ok()) return "bind refused: " + legality.error().message;
  const Oracle oracle(c.masks, *request, facts);
  if (legality->heads() != oracle.heads()) {
    return text("Legality has ", legality->heads(), " heads, not ",
                oracle.heads());
  }
  for (int64_t b = 0; b < c.batch; ++b) {
    for (int64_t h = 0; h < oracle.heads(); ++h) {
      for (int64_t i = 0; i < c.q_len; ++i) {
        for (int64_t j = 0; j < c.kv_len; ++j) {
          const bool want = oracle.legal(b, h, i, j);
          if (legality->legal(b, h, i, j) != want) {
            return text(
                "batch row ", b, ", head ", h, ", query ", i, ", key ", j,
                want ? " is legal, found illegal" : " is illegal, found legal");
          }
        }
      }
    }
  }
  return std::nullopt;
}

// Checks that explanations agree with legality: the root of the expression and
// the vetoes together give it. Only a few pairs per case, since each
// explanation makes strings.
Fault explain_fault(const RandomCase& c) {
  const Result<Request> request = c.request();
  if (!request.ok()) return "make_mask refused: " + request.error().message;
  const Facts facts = c.facts();
  const Result<Legality> legality = Legality::bind(*request, facts);
  if (!legality.ok()) return "bind refused: " + legality.error().message;
  const Oracle oracle(c.masks, *request, facts);
  const int64_t pairs = c.q_len * c.kv_len;
  for (int64_t at = 0; at < pairs; at += 1 + pairs / 7) {
    const int64_t i = at / c.kv_len;
    const int64_t j = at % c.kv_len;
    const int64_t b = at % c.batch;
    const int64_t h = at % oracle.heads();
    const Explanation e = legality->explain(b, h, i, j);
    bool vetoed = false;
    for (const ExplainStep& veto : e.vetoes) vetoed = vetoed || veto.holds;
    if (e.legal != oracle.legal(b, h, i, j) || e.expression.empty() ||
        e.legal != (!vetoed && e.expression[0].holds)) {
      return text("batch row ", b, ", head ", h, ", query ", i, ", key ", j,
                  " is explained wrongly");
    }
    if (e.tile_row != i / c.tile.q || e.tile_column != j / c.tile.kv) {
      return text("query ", i, ", key ", j, " is explained in tile (",
                  e.tile_row, ", ", e.tile_column, ")");
    }
  }
  return std::nullopt;
}

// Runs cases until one fails, which is then shrunk and printed.
TEST(PlanProperty, EveryTileIsWhatBruteForceSays) {
  hold_for_all(plan_fault, 3000);
}

TEST(PlanProperty, LegalityIsWhatBruteForceSays) {
  hold_for_all(legal_fault, 1500);
}

TEST(PlanProperty, ExplanationsSayTheSame) { hold_for_all(explain_fault, 500); }

// One plan's memory is reused for hundreds of different requests: nothing of
// one request may be left in the next plan.
TEST(PlanProperty, AReusedPlanEqualsAFreshOne) {
  Plan reused;
  const uint64_t first = first_seed(1);
  for (int64_t at = 0; at < case_count(500); ++at) {
    const RandomCase c = random_case(first + static_cast<uint64_t>(at));
    const Result<Request> request = c.request();
    ASSERT_TRUE(request.ok()) << request.error().message << describe(c);
    const Facts facts = c.facts();
    const Result<Plan> fresh = plan::make_plan(*request, facts);
    ASSERT_TRUE(fresh.ok()) << fresh.error().message << describe(c);
    const Result<mask::Sweep> sweep = mask::start_sweep(*request, facts);
    ASSERT_TRUE(sweep.ok()) << sweep.error().message << describe(c);
    const Result<void> again = plan::plan_sweep(*sweep, reused);
    ASSERT_TRUE(again.ok()) << again.error().message << describe(c);
    ASSERT_EQ(reused, *fresh) << describe(c);
  }
}

// Only the meaning of an expression matters: a shuffled and doubled expression
// gives the same lists, if its canonical form loses no name.
TEST(PlanProperty, ShuffledAndDoubledExpressionsGiveTheSamePlan) {
  const uint64_t first = first_seed(1);
  for (int64_t at = 0; at < case_count(300); ++at) {
    RandomCase c = random_case(first + static_cast<uint64_t>(at));
    const Result<Request> request = c.request();
    ASSERT_TRUE(request.ok());
    const Facts facts = c.facts();
    const Result<Plan> plan = plan::make_plan(*request, facts);
    RandomCase other = c;
    for (Expr& mask : other.masks) {
      std::reverse(mask.children.begin(), mask.children.end());
      if (mask.atom == Atom::op_not) {
        mask = !!mask;
      } else {
        mask = (mask & mask) | !!mask;
      }
    }
    const Result<Request> second = other.request();
    ASSERT_TRUE(second.ok()) << second.error().message << describe(other);
    EXPECT_EQ(*second, *request) << describe(c);
    const Result<Plan> same = plan::make_plan(*second, facts);
    ASSERT_TRUE(plan.ok() && same.ok()) << describe(c);
    ASSERT_EQ(*plan, *same) << describe(c);
  }
}

}  // namespace
}  // namespace tessera::testing
