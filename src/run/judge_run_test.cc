// run/judge_run_test.cc: tests that wrong outputs and unwritten ones are found.
#include "run/judge_run.h"

#include <gtest/gtest.h>

#include "request/attention_data.h"
#include "request/random_inputs.h"

namespace tessera::run {
namespace {

TEST(JudgeRun, FindsACorruptedOutput) {
  Request request;
  request.masks = {*parse_mask("causal")};
  for (const int64_t tokens : {100, 8192}) {  // whole, and a sample
    request.q_len = request.kv_len = tokens;
    const BorrowedBatch batch = *BorrowedBatch::make(request, {});
    request::AttentionData data;
    data.q_len = data.kv_len = tokens;
    data.shape = {1, 1, 8, 8, {}, 0};
    data.allocate();
    fill_random(data.q.view(), 0, request::Stream::q);
    fill_random(data.k.view(), 0, request::Stream::k);
    fill_random(data.v.view(), 0, request::Stream::v);
    SessionOptions options;
    options.lane = LaneId::reference;
    const RunCall call = {batch, data.shape, data.forward_tensors()};
    ASSERT_TRUE(run_attention(call, options).ok());
    const auto good = judge_run(data.over(batch));
    ASSERT_TRUE(good.ok());
    EXPECT_TRUE(good->passed) << good->worst;
    EXPECT_EQ(good->kind, tokens == 100 ? "full" : "sampled");
    static_cast<float*>(data.out.view().data)[3] += 1e-3f;  // query 0
    const auto bad = judge_run(data.over(batch));
    ASSERT_TRUE(bad.ok());
    EXPECT_FALSE(bad->passed);
    EXPECT_TRUE(bad->worst.starts_with("out[0, 0, 0, 3] is ")) << bad->worst;
  }
}

// An element that the lane did not write is judged as NaN.
TEST(JudgeRun, FindsAnOutputThatNobodyWrote) {
  Request request;
  request.masks = {*parse_mask("causal")};
  request.q_len = request.kv_len = 16;
  request::AttentionData data;
  const BorrowedBatch batch = *BorrowedBatch::make(request, {});
  data.q_len = data.kv_len = 16;
  data.shape = {1, 1, 8, 8, {}, 0};
  data.allocate();
  fill_random(data.q.view(), 0, request::Stream::q);
  fill_random(data.k.view(), 0, request::Stream::k);
  fill_random(data.v.view(), 0, request::Stream::v);
  EXPECT_FALSE(judge_run(data.over(batch))->passed);
}

}  // namespace
}  // namespace tessera::run
