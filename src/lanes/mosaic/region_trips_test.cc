// lanes/mosaic/region_trips_test.cc: a batch of several rows walks each of
// them.
#include "lanes/mosaic/region_trips.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "tests/lowering.h"

namespace tessera::mosaic {
namespace {

Request request_of(int64_t batch) {
  Request out;
  out.masks = {*parse_mask("causal & documents")};
  out.batch = batch;
  out.q_len = out.kv_len = 1024;
  out.tile = {256, 128};
  return out;
}

Result<std::vector<schedule::TripRule>> trips(const std::vector<int32_t>& ids,
                                              bool backward, int64_t heads = 4,
                                              int64_t kv_heads = 2,
                                              int64_t page_steps = 0,
                                              int64_t query_chunk = 0) {
  Facts facts;
  facts.doc_ids = ids;
  const Request request = request_of(static_cast<int64_t>(ids.size()) / 1024);
  AttentionCall call;
  call.shape = {heads, kv_heads, 128, 128, {}, 0};
  call.dtype = Dtype::bf16;
  call.backward = backward;
  MosaicOptions options = backward ? kMosaicBackward : MosaicOptions{};
  options.page_steps = page_steps;
  options.query_chunk = query_chunk;
  options.lowering_reason = testing::lowering_reason(request.tile);
  auto kernel = make_mosaic_kernel(request, facts, call, "v6e:1x1", options);
  if (!kernel) return kernel.error();
  auto batch = BorrowedBatch::make(request, facts);
  if (!batch) return batch.error();
  return region_trips(*batch, *kernel);
}

TEST(MosaicTrips, AreThoseOfEachRow) {
  std::vector<int32_t> all;
  std::vector<std::vector<int32_t>> rows(3);
  for (int32_t r = 0; r < 3; ++r) {
    for (int32_t i = 0; i < 1024; ++i) {
      rows[r].push_back(i < 1000 ? i / (90 + 300 * r) : -1);
    }
    all.insert(all.end(), rows[r].begin(), rows[r].end());
  }
  for (const bool backward : {false, true}) {
    const auto together = trips(all, backward);
    ASSERT_TRUE(together) << together.error().message;
    // Behind them the loop over the rows.
    EXPECT_EQ(together->back(), (schedule::TripRule{"grid", 3}));
    std::vector<double> sum(together->size() - 1);
    double loops = 0;
    for (const auto& row : rows) {
      const auto alone = trips(row, backward);
      ASSERT_TRUE(alone) << alone.error().message;
      ASSERT_EQ(alone->size(), sum.size());
      for (size_t i = 0; i < sum.size(); ++i) {
        EXPECT_EQ((*alone)[i].region, (*together)[i].region);
        sum[i] += (*alone)[i].trips;
        loops += (*alone)[i].as_loop.value_or(0);
      }
    }
    for (size_t i = 0; i < sum.size(); ++i) {
      const schedule::TripRule& rule = (*together)[i];
      EXPECT_EQ(rule.trips, sum[i]) << rule.region;
      EXPECT_EQ(rule.as_loop.has_value(), rule.region == "fetch");
      EXPECT_EQ(rule.loop_only, rule.region == "pass");
      if (rule.as_loop) {
        EXPECT_EQ(rule.as_loop, loops);
      }
    }
    // Where the fetch's ops name the loop, it is that of the passes.
    const auto of = [&](std::string_view region) {
      return *std::ranges::find(*together, region, &schedule::TripRule::region);
    };
    EXPECT_EQ(of("fetch").as_loop, of("pass").trips);
  }
}

// A walk of few heads a pass is as many walks of one: what is before the loop
// and behind it is one pass, and one row's end, of them all.
TEST(MosaicTrips, AreThoseOfOneHeadForEachPassOfHeads) {
  std::vector<int32_t> ids(1024);
  for (int32_t i = 0; i < 1024; ++i) ids[i] = i < 1000 ? 0 : -1;
  const auto one = trips(ids, false, 1, 1);
  ASSERT_TRUE(one) << one.error().message;
  struct Heads {
    int64_t heads, kv_heads, walks;
  };
  for (const Heads& h : {Heads{7, 7, 1}, Heads{8, 2, 1}, Heads{10, 5, 5},
                         Heads{12, 12, 2}, Heads{13, 13, 13}}) {
    const auto all = trips(ids, false, h.heads, h.kv_heads);
    ASSERT_TRUE(all) << all.error().message;
    ASSERT_EQ(all->size(), one->size());
    for (size_t i = 0; i < all->size(); ++i) {
      const std::string region = (*one)[i].region;
      const bool is_less = region == "pass" || region == "finish";
      if (!is_less && region != "full") continue;
      EXPECT_EQ((*all)[i].trips + is_less,
                static_cast<double>(h.walks) * ((*one)[i].trips + is_less))
          << region << " of " << h.heads << " heads";
    }
  }
}

// Backward too: what is a pass's or a tile's is once for all its heads, what is
// of keys once for all that share them.
TEST(MosaicTrips, BackwardAreThoseOfOneHeadForEachPassOfHeads) {
  std::vector<int32_t> ids(1024);
  for (int32_t i = 0; i < 1024; ++i) ids[i] = i < 1000 ? i / 600 : -1;
  const auto one = trips(ids, true, 1, 1);
  ASSERT_TRUE(one) << one.error().message;
  struct Heads {
    int64_t heads, kv_heads, walks, of_keys;
  };
  for (const Heads& h :
       {Heads{7, 7, 7, 7}, Heads{8, 2, 2, 2}, Heads{8, 1, 2, 1},
        Heads{10, 5, 5, 5}, Heads{12, 12, 3, 3}, Heads{12, 2, 4, 2}}) {
    const auto all = trips(ids, true, h.heads, h.kv_heads);
    ASSERT_TRUE(all) << all.error().message;
    ASSERT_EQ(all->size(), one->size());
    double rows = 0, rows_of_one = 0;  // fetched: how far ahead is their own
    for (size_t i = 0; i < all->size(); ++i) {
      const std::string& region = (*one)[i].region;
      const double of_one = (*one)[i].trips;
      const double found = (*all)[i].trips;
      EXPECT_EQ((*all)[i].region, region);
      if (region == "first_rows" || region == "fetch_row") {
        rows += found;
        rows_of_one += of_one;
        continue;
      }
      const bool is_once = region == "batch_row" || region == "grid";
      const bool is_of_keys = region == "clear" || region == "finish_column";
      const int64_t times = is_once ? 1 : is_of_keys ? h.of_keys : h.walks;
      EXPECT_EQ(found, static_cast<double>(times) * of_one)
          << region << " of " << h.heads << " heads";
    }
    EXPECT_EQ(rows, static_cast<double>(h.walks) * rows_of_one);
  }
}

// Forward a page is a walk of its own, with what is before the loop and behind
// it; backward a head's passes go on, but for the copies that begin a page.
TEST(MosaicTrips, OfPagesAreThoseOfTheirList) {
  std::vector<int32_t> ids(1024);
  for (int32_t i = 0; i < 1024; ++i) ids[i] = i < 1000 ? i / 600 : -1;
  for (const bool backward : {false, true}) {
    const auto by_name = [&](int64_t page_steps) {
      std::map<std::string, double> out;
      auto found = trips(ids, backward, 4, 2, page_steps);
      EXPECT_TRUE(found) << found.error().message;
      for (const auto& rule : *found) out[rule.region] = rule.trips;
      return out;
    };
    auto list = by_name(0);
    auto pages = by_name(8);  // of one row, or two
    EXPECT_FALSE(list.contains("page"));
    EXPECT_GT(pages["page"], 1);
    EXPECT_GT(pages["first_fetch"], list["first_fetch"]);
    EXPECT_EQ(pages["fetch"] + pages["first_fetch"],
              list["fetch"] + list["first_fetch"]);
    if (backward) {
      for (const char* same :
           {"pass", "full", "partial", "column", "prepare"}) {
        EXPECT_EQ(pages[same], list[same]) << same;
      }
      continue;
    }
    const double walks = pages["page"];
    EXPECT_EQ(pages["batch_row"], walks);
    EXPECT_EQ(pages["pass"] + walks, list["pass"] + 1);
    EXPECT_EQ(pages["finish"] + walks, list["finish"] + 1);
    EXPECT_EQ(pages["full"] + pages["partial"], pages["pass"]);
  }
}

// What a list has is met once whatever the chunks; a column's sums go out once,
// and what waits comes in again.
TEST(MosaicTrips, OfChunksAreThoseOfTheirList) {
  std::vector<int32_t> ids(2048);
  for (int32_t i = 0; i < 2048; ++i) ids[i] = i % 1024 < 1000 ? i / 600 : -1;
  struct Heads {
    int64_t heads, kv_heads;
  };
  for (const Heads& h : {Heads{4, 4}, Heads{4, 2}, Heads{5, 1}}) {
    const auto by_name = [&](int64_t query_chunk) {
      std::map<std::string, double> out;
      auto found = trips(ids, true, h.heads, h.kv_heads, 0, query_chunk);
      EXPECT_TRUE(found) << found.error().message;
      for (const auto& rule : *found) out[rule.region] = rule.trips;
      return out;
    };
    auto list = by_name(0);
    for (const int64_t chunk : {256, 512, 768}) {
      auto chunks = by_name(chunk);
      for (const char* same : {"batch_row", "prepare", "finish_row", "clear",
                               "finish_column", "full", "grid"}) {
        EXPECT_EQ(chunks[same], list[same]) << same << " of " << chunk;
      }
      EXPECT_EQ(chunks["chunk"], chunks["head"]);
      EXPECT_EQ(chunks["head"], list["head"] * ((1024 + chunk - 1) / chunk));
      EXPECT_GE(chunks["pass"], list["pass"]);
      EXPECT_EQ(chunks["full"] + chunks["partial"], chunks["pass"]);
      EXPECT_EQ(chunks["first_columns"] + chunks["fetch_column"],
                chunks["column"]);
      EXPECT_EQ(chunks["first_sums"] + chunks["fetch_sums"],
                chunks["wait_sums"]);
      EXPECT_EQ(chunks["wait_sums"], chunks["send_sums"]);
      EXPECT_EQ(chunks["clear"] + chunks["wait_sums"], chunks["column"]);
      EXPECT_GT(chunks["send_sums"], 0);
    }
  }
}

// Of a batch that is not the kernel's, as its arrays are.
TEST(MosaicTrips, ABatchThatDoesNotFitIsRefused) {
  Request asked = request_of(1);
  asked.masks = {*parse_mask("causal")};
  for (const int64_t query_chunk : {0, 512}) {
    AttentionCall call;
    call.shape = {4, 2, 128, 128, {}, 0};
    call.dtype = Dtype::bf16;
    call.backward = true;
    MosaicOptions options = kMosaicBackward;
    options.query_chunk = query_chunk;
    options.lowering_reason = testing::lowering_reason(asked.tile);
    const auto kernel = make_mosaic_kernel(asked, {}, call, "v6e", options);
    ASSERT_TRUE(kernel) << kernel.error().message;
    const auto why = [&](auto change) {
      Request request = asked;
      change(request);
      const auto batch = BorrowedBatch::make(request, {});
      if (!batch) return batch.error().message;
      const auto found = region_trips(*batch, *kernel);
      const auto arrays = make_mosaic_arrays(*batch, *kernel);
      if (found || arrays) return std::string();
      EXPECT_EQ(found.error().message, arrays.error().message);
      return found.error().message;
    };
    EXPECT_EQ(why([](Request& r) {
                r.tile = {128, 128};
              }),
              "[mosaic] a plan's tile must be the kernel's 256x128, found "
              "128x128");
    EXPECT_EQ(why([](Request& r) { r.masks.push_back(r.masks.front()); }),
              "[mosaic] heads with masks of their own must be the kernel's 1, "
              "found 2");
    EXPECT_EQ(why([](Request& r) { r.batch = 2; }),
              "[mosaic] batch must fit the kernel's 1, found 2");
    EXPECT_EQ(why([](Request& r) { r.q_len = 2048; }),
              "[mosaic] q_len must fit the kernel's 1024, found 2048");
    EXPECT_EQ(why([](Request& r) { r.kv_len = 2048; }),
              "[mosaic] kv_len must fit the kernel's 1024, found 2048");
  }
}

}  // namespace
}  // namespace tessera::mosaic
