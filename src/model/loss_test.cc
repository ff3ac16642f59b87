// model/loss_test.cc: how many logits a step's program has at once.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "model/step_plan.h"
#include "tests/stablehlo_types.h"

namespace tessera::model {
namespace {

constexpr int64_t kMaxLogits = int64_t{4} << 20;  // as in docs/train.md

// The number of elements of the largest array of a step.
int64_t largest_of(const StepShape& s) {
  auto text = step_program(s);
  EXPECT_TRUE(text) << text.error().message;
  if (!text) return 0;
  int64_t out = 0;
  for (const testing::Counted& type : testing::types_of(*text)) {
    out = std::max(out, static_cast<int64_t>(type.elements));
  }
  return out;
}

// A model whose other arrays are all smaller than its logits.
StepShape shape_of(int64_t vocab, const std::string& mesh = "") {
  TrainOptions o;
  o.model.vocab = vocab;
  o.model.layers = 1;
  o.model.width = 16;
  o.model.heads = o.model.kv_heads = 2;
  o.model.head_dim = 8;
  o.model.mlp_width = 16;
  o.spec = *find_layer_spec("xla");
  o.tokens = 4096;
  if (!mesh.empty()) o.mesh = *parse_mesh(mesh);
  auto planned = plan_step(o);
  EXPECT_TRUE(planned) << planned.error().message;
  return planned->shape;
}

TEST(Loss, HasNoMoreLogitsAtOnceThanIsSaid) {
  // 32768 ids times 128 rows.
  EXPECT_EQ(largest_of(shape_of(32768)), kMaxLogits);
  EXPECT_EQ(largest_of(shape_of(32768, "head=2")), kMaxLogits);
  // The largest multiple of 8 rows that fits.
  EXPECT_EQ(largest_of(shape_of(30000)), 136 * 30000);
  // Fewer rows are one chunk.
  EXPECT_EQ(largest_of(shape_of(256)), 4096 * 256);
}

TEST(Loss, HasOneRowsLogitsWhereThereIsRoomForFewer) {
  StepShape s = shape_of(32768);
  s.max_logits = 1000;
  EXPECT_EQ(largest_of(s), 32768 * 16);  // the head
}

// Checks the test above: a step with all logits at once is detected.
TEST(Loss, WouldBeSeenToHaveAllOfThem) {
  StepShape s = shape_of(32768);
  s.max_logits = int64_t{1} << 30;
  EXPECT_EQ(largest_of(s), int64_t{4096} * 32768);
}

}  // namespace
}  // namespace tessera::model
