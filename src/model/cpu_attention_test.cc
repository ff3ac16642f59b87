// model/cpu_attention_test.cc: a model whose program calls our CPU kernels for
// attention. All else in it is float64.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "lanes/cpu/ffi_handlers.h"
#include "lanes/cpu/plugin_calls.h"
#include "tessera/train.h"
#include "tests/model_case.h"
#include "tests/random_case.h"

namespace tessera::model {
namespace {

class CpuModel : public ModelCase {
 protected:
  CpuModel() : ModelCase(cpu::kCallingPlugin) {}

  void SetUp() override {
    auto there = cpu::ffi_handlers();
    if (!there) GTEST_SKIP() << there.error().message;
    ModelCase::SetUp();
    if (IsSkipped()) return;
    auto ok = cpu::add_handlers(place_);
    ASSERT_TRUE(ok) << ok.error().message;
  }

  // Sets a model whose attention is float32: the kernels take no float64.
  void set_cpu(const ModelConfig& m, const Row& rows, int64_t batch,
               Tile tile = {16, 16}) {
    attention_ = Element::f32;
    set(m, "cpu", rows, batch, tile);
    attention_ = Element::f64;
  }
};

// The same check as for spec xla in float64 (model_test.cc).
TEST_F(CpuModel, HasTheGradientsOfTheReference) {
  std::mt19937 random(4);
  const ModelConfig llama = small_model();
  ModelConfig gemma = llama;
  gemma.mlp = MlpKind::geglu;
  gemma.post_norms = true;
  gemma.embedding_scale = std::sqrt(24.0);
  gemma.softcap = 5;
  gemma.final_softcap = 3;
  gemma.score_scale = 0.2;
  gemma.windows = {6, 0};
  ModelConfig gpt = llama;
  gpt.norm = NormKind::layer;
  gpt.mlp = MlpKind::gelu;
  gpt.tied_head = false;
  gpt.fused_mlp = false;
  gpt.kv_heads = 1;
  ModelConfig clustered = llama;  // float32 and float64 pick alike here
  clustered.routes = {{3, 4, RouteRule::query_head}, {}, {2, 6}};
  clustered.windows = {0, 20};
  clustered.layers = 3;
  size_t number = 0;
  for (const auto& [what, m, recompute, tile] :
       {std::tuple("gemma", gemma, true, Tile{16, 16}),
        std::tuple("llama", llama, false, Tile{8, 32}),
        std::tuple("gpt", gpt, false, Tile{64, 64}),
        std::tuple("clustered", clustered, false, Tile{16, 8}),
        std::tuple("clustered", clustered, true, Tile{64, 64})}) {
    if (!testing::takes_case(number++, 5)) continue;
    SCOPED_TRACE(what);
    const Row rows = joined_rows(
        {draw_row(random, 23, 40, {17, 9, 5}), draw_row(random, 23, 40, {40})});
    ASSERT_NO_FATAL_FAILURE(set(m, "reference", rows, 2));
    const std::vector<Numbers> at = draw_parameters(random);
    const Expected want = expected(at, kUlp32);
    ASSERT_NO_FATAL_FAILURE(set_cpu(m, rows, 2, tile));
    s_.recompute = s_.drops_barriers = recompute;
    expect_same(want, run(true, at));
  }
}

TEST_F(CpuModel, APackedRowIsItsDocumentsApart) {
  attention_ = Element::f32;
  check_packed_row(small_model(), "cpu", kUlp32);
}

// A call checks the arrays that it gets.
TEST_F(CpuModel, RefusesListsOfAnotherBatch) {
  std::mt19937 random(5);
  const Row rows = draw_row(random, 23, 40, {17, 9, 5});
  ASSERT_NO_FATAL_FAILURE(set_cpu(small_model(), rows, 1));
  const std::vector<Numbers> at = draw_parameters(random);
  const pjrt::Loaded program = compiled(true);
  const std::map<std::string, Ints32> good = integers_;
  const auto why = [&] {
    auto found = results(program, at);
    return found ? std::string() : found.error().message;
  };
  EXPECT_EQ(why(), "");
  for (const char* list : {"forward", "transposed"}) {
    integers_ = good;
    integers_.at(std::string("plan0.") + list + ".entries")[0] ^= 1;
    const std::string said = why();
    EXPECT_NE(said.find("[cpu] worklists must be those that the batch's facts "
                        "plan to, found another " +
                        std::string(list) + " one"),
              std::string::npos)
        << said;
    EXPECT_EQ(said.find('\n'), std::string::npos);
  }
  integers_ = good;
  EXPECT_EQ(why(), "");
}

// First moments after one step are a tenth of its gradients. Both programs
// round products and attention to bf16, in different orders.
TEST_F(CpuModel, IsAsNearInBf16AsTheCompilersOwn) {
  TrainOptions o;
  o.model = small_model();
  o.model.windows = {0, 9};
  o.rows = 1;
  o.tokens = 40;
  o.tile = {16, 16};
  std::mt19937 random(6);
  const Row row = draw_row(random, 23, o.tokens, {20, 11});
  Rows rows = *Rows::make(RowShape::of(o.tokens), 1);
  rows.row(RowColumn::valid_token_count, 0)[0] = 31;
  rows.row(RowColumn::num_docs, 0)[0] = 2;
  for (const auto& [column, values] :
       {std::pair(RowColumn::input_ids, &row.input_ids),
        std::pair(RowColumn::target_ids, &row.target_ids),
        std::pair(RowColumn::loss_mask, &row.loss_mask),
        std::pair(RowColumn::positions, &row.positions),
        std::pair(RowColumn::doc_ids, &row.doc_ids)}) {
    std::copy(values->begin(), values->end(), rows.row(column, 0).begin());
  }
  const auto gradients = [&](const char* spec, Dtype products) {
    TrainOptions asked = o;
    asked.spec = *find_layer_spec(spec);
    asked.precision.products = products;
    asked.xla.plugin = cpu::kCallingPlugin;
    auto trainer = Trainer::open(asked);
    EXPECT_TRUE(trainer) << trainer.error().message;
    auto told = trainer->step(rows, {.learning_rate = 1e-3});
    EXPECT_TRUE(told) << told.error().message;
    auto state = read_checkpoint(*trainer->checkpoint(), asked.model,
                                 trainer->parameters());
    EXPECT_TRUE(state);
    Numbers out;
    for (const auto& moment : state->values[1]) {
      out.insert(out.end(), moment.begin(), moment.end());
    }
    return out;
  };
  const Numbers exact = gradients("reference", Dtype::f32);
  const auto distance = [&](const Numbers& from) {
    double out = 0;
    for (size_t i = 0; i < exact.size(); ++i) {
      out += (from[i] - exact[i]) * (from[i] - exact[i]);
    }
    return std::sqrt(out);
  };
  const double own = distance(gradients("xla", Dtype::bf16));
  EXPECT_GT(own, 0);
  EXPECT_LT(distance(gradients("cpu", Dtype::bf16)), 3 * own);
}

TEST(CpuSpec, NamesThePluginThatDoesNotCallIt) {
  TESSERA_NEEDS_PLUGINS();
  auto there = cpu::ffi_handlers();
  if (!there) GTEST_SKIP() << there.error().message;
  TrainOptions o;
  o.model = small_model();
  o.spec = *find_layer_spec("cpu");
  o.tokens = 40;
  o.xla.plugin = testing::fake_plugin("faulty");
  auto none = Trainer::open(o);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().kind, ErrorKind::unavailable);
  EXPECT_EQ(none.error().message,
            "[cpu] a plugin must call our kernels from its programs, as "
            "lammps_jax_pjrt_cpu does, found a fake device for '" +
                std::filesystem::canonical(o.xla.plugin).string() + "'");
}

TEST(CpuSpec, RefusesWhatTheKernelsHaveNot) {
  TrainOptions o;
  o.model = small_model();
  o.model.score_scale = 1e10;  // a number that a model may have, as is the next
  o.model.softcap = 1e-25;
  o.spec = *find_layer_spec("cpu");
  o.tokens = 40;
  auto text = Trainer::program_text(o);
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().message.find("[cpu] scale / softcap"), 0U)
      << text.error().message;
}

}  // namespace
}  // namespace tessera::model
