// lanes/mosaic/trips_test.cc: a batch of several rows walks each of them.
#include "lanes/mosaic/trips.h"

#include <gtest/gtest.h>

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
                                              bool backward) {
  Facts facts;
  facts.doc_ids = ids;
  const Request request = request_of(static_cast<int64_t>(ids.size()) / 1024);
  AttentionCall call;
  call.shape = {4, 2, 128, 128, {}, 0};
  call.dtype = Dtype::bf16;
  call.backward = backward;
  auto kernel =
      make_mosaic_kernel(request, facts, call, "v6e:1x1",
                         backward ? kMosaicBackward : MosaicOptions{});
  if (!kernel) return kernel.error();
  auto batch = BorrowedBatch::make(request, facts);
  if (!batch) return batch.error();
  return mosaic_trips(*batch, *kernel);
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
    for (const auto& row : rows) {
      const auto alone = trips(row, backward);
      ASSERT_TRUE(alone) << alone.error().message;
      ASSERT_EQ(alone->size(), sum.size());
      for (size_t i = 0; i < sum.size(); ++i) {
        EXPECT_EQ((*alone)[i].region, (*together)[i].region);
        sum[i] += (*alone)[i].trips;
      }
    }
    for (size_t i = 0; i < sum.size(); ++i) {
      EXPECT_EQ((*together)[i].trips, sum[i]) << (*together)[i].region;
    }
  }
}

}  // namespace
}  // namespace tessera::mosaic
