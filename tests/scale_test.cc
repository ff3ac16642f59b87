// tests/scale_test.cc: plans too long for brute force are compared with plans
// of smaller tiles and with single pairs.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

#include "plan/make_plan.h"
#include "tessera/plan.h"
#include "tessera/route.h"
#include "tests/oracle.h"
#include "tests/random_case.h"
#include "tests/random_tree.h"

namespace tessera::testing {
namespace {

using Random = std::mt19937_64;

int64_t below(Random& random, int64_t n) {
  return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
}

bool names_tree(const Expr& e) {
  return e.atom == Atom::tree || std::ranges::any_of(e.children, names_tree);
}

// Tens of thousands of tokens, documents of many lengths, one mask.
RandomCase long_case(uint64_t seed) {
  Random random(seed);
  RandomCase c;
  c.seed = seed;
  c.kv_len = 5000 + below(random, 60000);
  c.q_len = below(random, 2) ? c.kv_len : 1 + below(random, c.kv_len);
  c.masks = {random_expr(random, 2, 0)};
  if (below(random, 2)) c.masks[0] = causal() & c.masks[0];
  if (below(random, 2)) {
    c.masks[0] = c.masks[0] & window(1 + below(random, 9000), 0);
  }
  c.doc_ids.emplace();
  const int64_t mean = 1 + below(random, 5000);
  const bool repeat = below(random, 3) == 0;
  for (int32_t id = 0; static_cast<int64_t>(c.doc_ids->size()) < c.kv_len;
       ++id) {
    const int64_t left = c.kv_len - static_cast<int64_t>(c.doc_ids->size());
    const int64_t n = std::min(left, 1 + below(random, 2 * mean));
    c.doc_ids->insert(c.doc_ids->end(), static_cast<size_t>(n),
                      repeat ? id % 5 : id);
  }
  if (below(random, 2)) {
    std::fill(c.doc_ids->end() - below(random, 3000), c.doc_ids->end(), -1);
  }
  const auto most = static_cast<int32_t>(below(random, c.kv_len));
  if (below(random, 3) == 0) c.valid_tokens = {most};
  c.prefix = {std::min<int32_t>(most, 700)};
  if (names_tree(c.masks[0])) {
    append_random_tree(random, c.kv_len, c.kv_len, c.tree_enter.emplace(),
                       c.tree_leave.emplace());
  }
  if (names_atom(c.masks[0], Atom::same)) {
    c.same_a = std::vector<int32_t>(c.doc_ids->rbegin(), c.doc_ids->rend());
    c.same_b = c.doc_ids;
  }
  return c;
}

int class_at(const Worklist& w, int64_t row, int64_t column) {
  for (const Entry e : w.row(0, row)) {
    if (e.column() == column) return static_cast<int>(e.tile_class());
  }
  return 0;
}

Plan plan_with(RandomCase& c, Tile tile) {
  c.tile = tile;
  const Result<Request> request = c.request();
  EXPECT_TRUE(request.ok()) << request.error().message;
  const Facts facts = c.facts();
  const Result<Plan> plan = plan::make_plan(*request, facts);
  EXPECT_TRUE(plan.ok()) << plan.error().message;
  return plan.ok() ? *plan : Plan{};
}

// A tile is full if its four quarters are full, empty if they are empty, else
// partial. The legal pairs do not depend on the tile.
TEST(Scale, LargeTilesAreTheirQuarters) {
  const uint64_t first = first_seed(1);
  for (int64_t at = 0; at < case_count(60); ++at) {
    RandomCase c = long_case(first + static_cast<uint64_t>(at));
    SCOPED_TRACE("TESSERA_SEED=" + std::to_string(c.seed) + " " +
                 spell(c.masks[0]));
    const Plan small = plan_with(c, {128, 192});
    const Plan large = plan_with(c, {256, 384});
    EXPECT_EQ(small.legal_pairs, large.legal_pairs);
    EXPECT_EQ(small.legal_pairs, plan_with(c, {1000, 77}).legal_pairs);
    EXPECT_EQ(small.legal_pairs, plan_with(c, {4096, 4096}).legal_pairs);
    const Worklist& s = small.forward;
    std::vector<int> cells(static_cast<size_t>(s.rows * s.columns), 0);
    for (int64_t r = 0; r < s.rows; ++r) {
      for (const Entry e : s.row(0, r)) {
        cells[static_cast<size_t>(r * s.columns + e.column())] =
            static_cast<int>(e.tile_class());
      }
    }
    const Worklist& l = large.forward;
    for (int64_t r = 0; r < l.rows; ++r) {
      std::vector<int> found(static_cast<size_t>(l.columns), 0);
      for (const Entry e : l.row(0, r)) {
        found[static_cast<size_t>(e.column())] =
            static_cast<int>(e.tile_class());
      }
      for (int64_t col = 0; col < l.columns; ++col) {
        bool any = false, all = true;
        for (int64_t i = 2 * r; i < std::min(2 * r + 2, s.rows); ++i) {
          for (int64_t j = 2 * col; j < std::min(2 * col + 2, s.columns); ++j) {
            const int cell = cells[static_cast<size_t>(i * s.columns + j)];
            any = any || cell != 0;
            all = all && cell == 2;
          }
        }
        ASSERT_EQ(found[static_cast<size_t>(col)], all   ? 2
                                                   : any ? 1
                                                         : 0)
            << "tile (" << r << ", " << col << ")";
      }
    }
  }
}

// Random pairs: none is legal in an unlisted tile, all are legal in a full one.
TEST(Scale, SinglePairsAgreeWithTheirTile) {
  const uint64_t first = first_seed(1);
  for (int64_t at = 0; at < case_count(60); ++at) {
    RandomCase c = long_case(first + static_cast<uint64_t>(at));
    SCOPED_TRACE("TESSERA_SEED=" + std::to_string(c.seed) + " " +
                 spell(c.masks[0]));
    const Plan plan = plan_with(c, {256, 256});
    const Result<Request> request = c.request();
    const Facts facts = c.facts();
    const Result<Legality> legality = Legality::bind(*request, facts);
    ASSERT_TRUE(legality.ok()) << legality.error().message;
    Random random(c.seed);
    for (int pair = 0; pair < 3000; ++pair) {
      const int64_t q = below(random, c.q_len);
      const int64_t k = below(random, c.kv_len);
      const int found = class_at(plan.forward, q / 256, k / 256);
      if (found == 1) continue;
      ASSERT_EQ(legality->legal(0, 0, q, k), found == 2)
          << "query " << q << ", key " << k;
      ASSERT_EQ(class_at(plan.transposed, k / 256, q / 256), found);
    }
  }
}

// Packed causal documents have a closed form: each is a triangle.
TEST(Scale, PackedCausalDocumentsAreTriangles) {
  Random random(7);
  RandomCase c;
  c.q_len = c.kv_len = 1 << 18;
  c.masks = {causal() & documents()};
  c.doc_ids.emplace();
  int64_t pairs = 0;
  for (int32_t id = 0; static_cast<int64_t>(c.doc_ids->size()) < c.kv_len;
       ++id) {
    const int64_t left = c.kv_len - static_cast<int64_t>(c.doc_ids->size());
    const int64_t n = std::min(left, 1 + below(random, 4096));
    c.doc_ids->insert(c.doc_ids->end(), static_cast<size_t>(n), id);
    pairs += n * (n + 1) / 2;
  }
  EXPECT_EQ(plan_with(c, {256, 256}).legal_pairs[0], pairs);
  EXPECT_EQ(plan_with(c, {509, 131}).legal_pairs[0], pairs);
}

// Routing of thousands of interleaved documents has a closed form: each
// document has a key in every sixteenth block, so its n-th query scores n
// blocks.
TEST(Scale, RoutingOfInterleavedDocumentsIsCounted) {
  constexpr int64_t kTokens = 1 << 16;
  constexpr int64_t kDocuments = 4096;
  constexpr int64_t kKeys = kTokens / kDocuments;
  constexpr int64_t kDim = 8;
  std::vector<int32_t> ids;
  for (int64_t t = 0; t < kTokens; ++t) {
    ids.push_back(static_cast<int32_t>(t % kDocuments));
  }
  Random random(3);
  std::vector<float> q, k;
  for (int64_t i = 0; i < kTokens * kDim; ++i) {
    q.push_back(static_cast<float>(below(random, 9)) - 4);
    k.push_back(static_cast<float>(below(random, 9)) - 4);
  }
  Request request;
  request.masks = {*make_mask(causal() & documents() & routed(3, 256))};
  request.q_len = request.kv_len = kTokens;
  Facts facts;
  facts.doc_ids = ids;
  RouteInputs in;
  in.q = TensorView::bhsd(q.data(), Dtype::f32, 1, 1, kTokens, kDim);
  in.k = TensorView::bhsd(k.data(), Dtype::f32, 1, 1, kTokens, kDim);
  RouteSettings settings = moba_settings(3, 256);
  settings.query_tile = kDocuments;  // one query of each document
  std::vector<int32_t> alone;
  for (const RouteRule rule : {RouteRule::kv_head, RouteRule::query_tile}) {
    settings.rule = rule;
    auto r = route(request, facts, in, settings);
    ASSERT_TRUE(r) << r.error().message;
    EXPECT_EQ(r->counts.pooled_keys, kTokens);
    EXPECT_EQ(r->counts.scores, kDocuments * kKeys * (kKeys + 1) / 2);
    EXPECT_EQ(r->counts.picks, kDocuments * (1 + 2 + 3 * (kKeys - 2)));
    EXPECT_EQ(r->counts.removed_future, 0);
    if (alone.empty()) alone = r->picks;
    EXPECT_EQ(r->picks, alone);
  }
}

}  // namespace
}  // namespace tessera::testing
