// tests/threads_test.cc: every stage is a pure function, so callers may plan
// from many threads at once. The thread sanitizer watches this program.
#include <gtest/gtest.h>

#include <random>
#include <thread>
#include <vector>

#include "plan/make_plan.h"
#include "tessera/tessera.h"

namespace tessera {
namespace {

constexpr int kThreads = 4;
constexpr int64_t kLength = 1500;

template <class Work>
void on_threads(Work work) {
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) threads.emplace_back(work, t);
  for (std::thread& t : threads) t.join();
}

std::vector<int32_t> packed_ids(unsigned seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> ids;
  for (int32_t id = 0; ssize(ids) < kLength; ++id)
    ids.insert(ids.end(), 1 + random() % 200, id);
  ids.resize(kLength);
  return ids;
}

Request request_of(const char* mask) {
  Request request;
  request.masks = {*parse_mask(mask)};
  request.q_len = request.kv_len = kLength;
  request.tile = {64, 32};
  return request;
}

TEST(Threads, PlanTheirOwnBatches) {
  const Request request = request_of("causal & documents | sink(4)");
  std::vector<Plan> alone;
  for (int t = 0; t < kThreads; ++t) {
    const std::vector<int32_t> ids = packed_ids(t);
    Facts facts;
    facts.doc_ids = ids;
    alone.push_back(*plan::make_plan(request, facts));
  }
  ASSERT_FALSE(alone[0] == alone[1]);
  std::vector<Plan> together(kThreads);
  on_threads([&](int t) {
    const std::vector<int32_t> ids = packed_ids(t);
    Facts facts;
    facts.doc_ids = ids;
    auto batch = BorrowedBatch::make(request, facts);
    ASSERT_TRUE(batch.ok());
    for (int again = 0; again < 5; ++again)
      ASSERT_TRUE(batch->remake(facts).ok());
    together[static_cast<size_t>(t)] = batch->plan();
  });
  for (int t = 0; t < kThreads; ++t) EXPECT_EQ(together[t], alone[t]) << t;
}

TEST(Threads, ShareRequestFactsAndLegality) {
  const Request request = request_of("causal & window(300, 0) & documents");
  const std::vector<int32_t> ids = packed_ids(7);
  Facts facts;
  facts.doc_ids = ids;
  const Plan alone = *plan::make_plan(request, facts);
  const Result<Legality> legality = Legality::bind(request, facts);
  ASSERT_TRUE(legality.ok());
  on_threads([&](int t) {
    EXPECT_EQ(*plan::make_plan(request, facts), alone);
    int64_t legal = 0;
    for (int64_t q = 0; q < kLength; ++q)
      for (int64_t k = 0; k <= q; ++k) legal += legality->legal(0, 0, q, k);
    EXPECT_EQ(legal, alone.legal_pairs[0]) << t;
  });
}

TEST(Threads, ParseAtOnce) {
  on_threads([](int) {
    for (int i = 0; i < 100; ++i)
      EXPECT_EQ(to_string(*parse_mask("documents & causal & causal")),
                to_string(*parse_mask("causal & documents")));
  });
}

}  // namespace
}  // namespace tessera
