// lanes/cpu/prepare_test.cc: the legal keys of every query, as intervals,
// compared pair by pair.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "lanes/cpu/work.h"
#include "plan/make_plan.h"
#include "tessera/plan.h"
#include "tests/random_case.h"

namespace tessera::cpu {
namespace {

using testing::RandomCase;

// Expects ascending intervals that do not touch, of exactly the legal keys.
void expect_legal_keys(const RandomCase& c) {
  const auto request = c.request();
  if (!request) return;  // the mask is not allowed
  const Facts facts = c.facts();
  const auto plan = plan::make_plan(*request, facts);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  const auto legality = Legality::bind(*request, facts);
  ASSERT_TRUE(legality.ok()) << legality.error().message;
  CpuOptions options;
  options.threads = static_cast<int>(1 + c.seed % 3);
  const auto work = cpu_prepare(*BorrowedBatch::make(*request, facts), options);
  ASSERT_TRUE(work.ok()) << work.error().message;
  for (int64_t list = 0; list < plan->batch * plan->heads; ++list) {
    for (int64_t q = 0; q < c.q_len; ++q) {
      std::vector<KeySpan> want;
      for (int64_t k = 0; k < c.kv_len; ++k) {
        if (!legality->legal(list / plan->heads, list % plan->heads, q, k)) {
          continue;
        }
        const auto key = static_cast<int32_t>(k);
        if (want.empty() || want.back().end != key) want.push_back({key, key});
        want.back().end = key + 1;
      }
      const auto got = work->state().keys_of(list, q);
      ASSERT_TRUE(std::equal(got.begin(), got.end(), want.begin(), want.end(),
                             [](const KeySpan& a, const KeySpan& b) {
                               return a.begin == b.begin && a.end == b.end;
                             }))
          << "list " << list << ", query " << q << " of\n"
          << describe(c);
    }
  }
}

TEST(CpuPrepare, IntervalsAreTheLegalKeys) {
  for (uint64_t seed = 0; seed < 1500; ++seed) {
    expect_legal_keys(testing::random_case(seed));
    if (HasFatalFailure()) return;
  }
}

// Masks that tell future keys from past keys, but use no other distance.
TEST(CpuPrepare, NeighboursThatPickAlikeAreToldApartByTimeAlone) {
  std::mt19937_64 random(3);
  int cases = 0;
  for (uint64_t seed = 0; cases < 400; ++seed) {
    RandomCase c = testing::random_case(seed);
    if (!c.picks) continue;
    int64_t block = 0;
    for (const Expr& e : c.masks) {
      const auto mask = make_mask(e);
      if (mask) block = std::max(block, mask->names.picks_block);
    }
    if (block == 0) continue;
    const bool ids = c.doc_ids.has_value();
    const Expr picked = routed(c.pick_k, block);
    const Expr choices[] = {
        causal() & picked,
        picked,
        ids ? causal() & documents() & picked : causal() & chunk(7) & picked,
        causal() & (picked | sink(3)),
        causal() & !picked,
        causal() | picked,
    };
    for (Expr& e : c.masks) e = choices[random() % std::size(choices)];
    // Most queries have the picks of the query before.
    std::vector<int32_t>& picks = *c.picks;
    const auto k = static_cast<size_t>(c.pick_k);
    for (size_t i = k; i < picks.size(); i += k) {
      if (random() % 5 == 0) continue;
      std::copy_n(picks.begin() + static_cast<std::ptrdiff_t>(i - k), k,
                  picks.begin() + static_cast<std::ptrdiff_t>(i));
    }
    // The new masks may name documents for positions without keys.
    if (!well_formed(c)) continue;
    ++cases;
    expect_legal_keys(c);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace tessera::cpu
