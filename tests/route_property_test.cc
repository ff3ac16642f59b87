// tests/route_property_test.cc: the router against an oracle in plain loops,
// over random shapes, documents, tails, ties, heads and settings.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "base/float16.h"
#include "plan/make_plan.h"
#include "tests/oracle.h"
#include "tests/random_case.h"
#include "tests/route_oracle.h"

namespace tessera::testing {
namespace {

RouteResult run(const RouteCase& c, const RouteOptions& options = {}) {
  auto r = route(c.request(), c.facts(), c.inputs(), c.settings, options);
  EXPECT_TRUE(r) << (r ? "" : r.error().message) << "\n" << c.describe();
  return r ? *r : RouteResult{};
}

template <class Check>
void for_cases(int64_t cases, Check&& check) {
  const uint64_t first = first_seed(7);
  const int64_t n = case_count(cases);
  for (int64_t i = 0; i < n && !::testing::Test::HasFailure(); ++i) {
    check(random_route_case(first + static_cast<uint64_t>(i)));
  }
}

TEST(RouteProperty, PicksAreTheOracles) {
  for_cases(600, [](const RouteCase& c) {
    const RouteResult r = run(c);
    EXPECT_EQ(r.picks, oracle_picks(c)) << c.describe();
    // A single query never picks blocks after itself. If query ids are given,
    // its document may begin after it in its own block.
    if (c.settings.rule != RouteRule::query_tile && !c.q_doc_ids) {
      EXPECT_EQ(r.counts.removed_future, 0) << c.describe();
    }
  });
}

// The layout, and the dtype of numbers that 16 bits hold, do not change picks.
TEST(RouteProperty, LayoutsAndDtypesPickTheSame) {
  for_cases(80, [](RouteCase c) {
    for (float& x : c.q) x = std::round(4 * x) / 4;
    for (float& x : c.k) x = std::round(4 * x) / 4;
    const std::vector<int32_t> want = oracle_picks(c);
    for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16}) {
      std::vector<float> wide[2];
      std::vector<uint16_t> narrow[2];
      const auto turned = [&](const std::vector<float>& x, int64_t heads,
                              int64_t tokens, int which) {
        for (int64_t b = 0; b < c.batch; ++b) {
          for (int64_t t = 0; t < tokens; ++t) {
            for (int64_t h = 0; h < heads; ++h) {
              for (int64_t d = 0; d < c.dim; ++d) {
                const float value = x[static_cast<size_t>(
                    ((b * heads + h) * tokens + t) * c.dim + d)];
                wide[which].push_back(value);
                const auto exact = static_cast<double>(value);
                narrow[which].push_back(dtype == Dtype::bf16 ? to_bf16(exact)
                                                             : to_f16(exact));
              }
            }
          }
        }
        const void* data = dtype == Dtype::f32
                               ? static_cast<const void*>(wide[which].data())
                               : narrow[which].data();
        return TensorView::bshd(data, dtype, c.batch, heads, tokens, c.dim);
      };
      RouteInputs in;
      in.q = turned(c.q, c.heads, c.q_len, 0);
      in.k = turned(c.k, c.kv_heads, c.kv_len, 1);
      auto r = route(c.request(), c.facts(), in, c.settings);
      ASSERT_TRUE(r) << r.error().message << "\n" << c.describe();
      EXPECT_EQ(r->picks, want) << to_string(dtype) << " " << c.describe();
    }
  });
}

// Arbitrary picks of another router: the legal ones are kept, and the removed
// ones are counted.
TEST(RouteProperty, LegalityLeavesWhatTheOracleAllows) {
  for_cases(200, [](const RouteCase& c) {
    std::mt19937_64 random(c.seed);
    const int64_t blocks = (c.kv_len + c.settings.block - 1) / c.settings.block;
    const int64_t k = 1 + static_cast<int64_t>(random() % 5);
    const int64_t heads = random() % 2 == 0 ? 1 : c.heads;
    std::vector<int32_t> given, want;
    int64_t removed = 0;
    for (int64_t i = 0; i < c.batch * heads * c.q_len; ++i) {
      std::set<int32_t> picks;
      for (int64_t n = 0; n < k; ++n) {
        picks.insert(
            static_cast<int32_t>(random() % static_cast<uint64_t>(blocks)));
      }
      int64_t left = 0;
      for (const int32_t p : picks) {
        given.push_back(p);
        if (oracle_pick_legal(c, i / c.q_len / heads, i % c.q_len, p)) {
          want.push_back(p);
          ++left;
        }
      }
      removed += static_cast<int64_t>(picks.size()) - left;
      given.resize(static_cast<size_t>((i + 1) * k), -1);
      want.resize(static_cast<size_t>((i + 1) * k), -1);
    }
    RouteInputs in;
    in.picks = Picks{given, heads, k};
    auto r = route(c.request(), c.facts(), in, c.settings);
    ASSERT_TRUE(r) << r.error().message << "\n" << c.describe();
    EXPECT_EQ(r->picks, want) << c.describe();
    const RouteCounts& n = r->counts;
    EXPECT_EQ(n.removed_invalid + n.removed_documents + n.removed_future,
              removed);
    EXPECT_EQ(r->warnings.size(), removed > 0 ? 1U : 0U);
    RouteSettings strict = c.settings;
    strict.strict = true;
    EXPECT_EQ(route(c.request(), c.facts(), in, strict).ok(), removed == 0);
  });
}

TEST(RouteProperty, EveryInstructionSetPicksTheSame) {
  for_cases(100, [](const RouteCase& c) {
    const RouteResult best = run(c);
    for (const Isa isa : machine_isas()) {
      RouteOptions options;
      options.isa = isa;
      EXPECT_EQ(run(c, options).picks, best.picks)
          << to_string(isa) << " " << c.describe();
    }
  });
}

TEST(RouteProperty, WindowingChangesNoPick) {
  for_cases(150, [](RouteCase c) {
    c.settings.windowed = true;
    const RouteResult with = run(c);
    c.settings.windowed = false;
    const RouteResult without = run(c);
    EXPECT_EQ(with.picks, without.picks) << c.describe();
    EXPECT_EQ(without.counts.routing_tiles_scored,
              without.counts.routing_tiles);
    EXPECT_LE(with.counts.routing_tiles_scored, with.counts.routing_tiles);
  });
}

TEST(RouteProperty, UnionsLeadBackToEachQuerysOwnPicks) {
  for_cases(200, [](RouteCase c) {
    const RouteResult r = run(c);
    const RouteSettings& s = c.settings;
    const int64_t tiles = (c.q_len + s.query_tile - 1) / s.query_tile;
    for (int64_t list = 0; list < c.batch * r.heads; ++list) {
      for (int64_t tile = 0; tile < tiles; ++tile) {
        std::set<int32_t> want;
        const auto row = r.unions.row(list * tiles + tile);
        for (int64_t q = tile * s.query_tile;
             q < std::min(c.q_len, (tile + 1) * s.query_tile); ++q) {
          for (int64_t i = 0; i < r.k; ++i) {
            const auto at = static_cast<size_t>((list * c.q_len + q) * r.k + i);
            const int32_t slot = r.unions.slots[at];
            ASSERT_EQ(slot >= 0, r.picks[at] >= 0) << c.describe();
            if (slot < 0) continue;
            ASSERT_LT(static_cast<size_t>(slot), row.size()) << c.describe();
            EXPECT_EQ(row[static_cast<size_t>(slot)], r.picks[at]);
            want.insert(r.picks[at]);
          }
        }
        EXPECT_EQ(std::vector<int32_t>(row.begin(), row.end()),
                  std::vector<int32_t>(want.begin(), want.end()))
            << c.describe();
      }
    }
    c.settings.union_method = s.union_method == UnionMethod::sort
                                  ? UnionMethod::bitmap
                                  : UnionMethod::sort;
    EXPECT_EQ(run(c).unions, r.unions) << c.describe();
  });
}

// Compares the tiles of the plan with every pair, for both meanings.
TEST(RouteProperty, PlanHoldsWhatTheMeaningSays) {
  for_cases(150, [](RouteCase c) {
    for (const RouteMeaning meaning :
         {RouteMeaning::exact, RouteMeaning::tile_union}) {
      c.settings.meaning = meaning;
      const RouteResult r = run(c);
      Request request = c.request();
      request.tile = {8, 8};
      const Facts facts = r.facts(c.facts());
      auto plan = plan::make_plan(request, facts);
      ASSERT_TRUE(plan) << plan.error().message << "\n" << c.describe();
      const RouteSettings& s = c.settings;
      const int64_t tiles = (c.q_len + s.query_tile - 1) / s.query_tile;
      std::vector<int64_t> pairs(plan->legal_pairs.size(), 0);
      for (int64_t b = 0; b < c.batch; ++b) {
        for (int64_t h = 0; h < r.heads; ++h) {
          const int64_t list = b * r.heads + h;
          for (int64_t q = 0; q < c.q_len; ++q) {
            std::set<int64_t> seen;
            if (meaning == RouteMeaning::exact) {
              for (int64_t i = 0; i < r.k; ++i) {
                seen.insert(r.picks[static_cast<size_t>(
                    (list * c.q_len + q) * r.k + i)]);
              }
            } else {
              const auto row = r.unions.row(list * tiles + q / s.query_tile);
              seen.insert(row.begin(), row.end());
            }
            for (int64_t t = 0; t < c.kv_len; ++t) {
              if (!seen.contains(t / s.block)) continue;
              // `causal` and documents hold for single tokens.
              RouteCase one = c;
              one.settings.block = 1;
              const int64_t offset =
                  c.q_offsets ? (*c.q_offsets)[static_cast<size_t>(b)]
                              : c.kv_len - c.q_len;
              if (t > q + offset) continue;
              pairs[static_cast<size_t>(plan->list(b, h))] +=
                  oracle_pick_legal(one, b, q, t);
            }
          }
        }
      }
      EXPECT_EQ(plan->legal_pairs, pairs)
          << to_string(meaning) << " " << c.describe();
    }
  });
}

TEST(RouteProperty, EveryMetaKeptIsExhaustiveRouting) {
  for_cases(200, [](RouteCase c) {
    const RouteResult exhaustive = run(c);
    c.settings.hierarchical = true;
    c.settings.meta_ratio = 1 + static_cast<int64_t>(c.seed % 5);
    c.settings.top_metas = c.kv_len;
    const RouteResult all = run(c);
    EXPECT_EQ(all.picks, exhaustive.picks) << c.describe();
    auto recall = route_recall(all, exhaustive);
    ASSERT_TRUE(recall) << recall.error().message;
    EXPECT_EQ(recall->recall(), 1.0);
    EXPECT_EQ(recall->worst, 1.0);
  });
}

// With few metas the picks are those of an oracle that pools, scores and keeps
// groups by the definition.
TEST(RouteProperty, FewMetasPickAmongTheirChildren) {
  int64_t lost = 0;
  for_cases(200, [&](RouteCase c) {
    const RouteResult exhaustive = run(c);
    c.settings.hierarchical = true;
    c.settings.meta_ratio = 2 + static_cast<int64_t>(c.seed % 2);
    c.settings.top_metas = c.settings.top;
    const RouteResult few = run(c);
    EXPECT_EQ(few.picks, oracle_picks(c)) << c.describe();
    int64_t found = 0;
    for (size_t i = 0; i < few.picks.size(); i += static_cast<size_t>(few.k)) {
      const auto in = [&](const RouteResult& r) {
        return std::set<int32_t>(
            r.picks.begin() + static_cast<int64_t>(i),
            r.picks.begin() + static_cast<int64_t>(i) + r.k);
      };
      const std::set<int32_t> all = in(exhaustive);
      for (const int32_t pick : in(few))
        found += pick >= 0 && all.contains(pick);
    }
    auto recall = route_recall(few, exhaustive);
    ASSERT_TRUE(recall) << recall.error().message;
    lost += recall->picks - recall->found;
    EXPECT_EQ(recall->found, found) << c.describe();
    for (size_t at = 0; at < few.picks.size(); ++at) {
      if (few.picks[at] < 0) continue;
      const auto i = static_cast<int64_t>(at) / few.k;
      EXPECT_TRUE(oracle_pick_legal(c, i / c.q_len / few.heads, i % c.q_len,
                                    few.picks[at]))
          << c.describe();
    }
  });
  EXPECT_GT(lost, 0) << "few metas should miss something in so many cases";
}

}  // namespace
}  // namespace tessera::testing
