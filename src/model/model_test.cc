// model/model_test.cc: gradients of whole steps against finite differences in
// float64; two specs and two forms of the MLP against each other; a packed row
// against its separate documents.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "tests/cpu_plugin.h"
#include "tests/model_case.h"
#include "tests/random_case.h"

namespace tessera::model {
namespace {

class Model : public ModelCase {
 protected:
  // Along a random direction of each parameter. A central difference's error is
  // estimated by one of twice the step, and by the loss's rounding.
  void check_gradients(std::mt19937& random) {
    const std::vector<Numbers> at = draw_parameters(random);
    const std::vector<Numbers> got = run(true, at);
    ASSERT_EQ(got.size(), at.size() + 1);
    const pjrt::Loaded losses = compiled(false);
    const double loss = got[0][0];
    EXPECT_EQ(run(losses, at)[0][0], loss);
    auto shapes = model_parameters(s_.model, s_.spec);
    std::normal_distribution<double> normal;
    for (size_t i = 0; i < at.size(); ++i) {
      const Growth seen = growth_along(
          [&](const std::vector<Numbers>& moved) {
            return run(losses, moved)[0][0];
          },
          at, i, got[i + 1], [&] { return normal(random); });
      // A loss is a sum over tokens of terms of about the loss's size.
      const double rounding =
          64 * 2.3e-16 * (std::abs(loss) + 1) *
          std::sqrt(static_cast<double>(s_.batch * s_.tokens)) / kGrowthStep;
      EXPECT_NEAR(seen.slope, seen.due, seen.apart + rounding)
          << (*shapes)[i].name;
      EXPECT_GT(std::abs(seen.due), 4 * (seen.apart + rounding))
          << (*shapes)[i].name << ": the test sees nothing";
    }
  }
};

TEST_F(Model, GradientsAreThoseOfFiniteDifferences) {
  std::mt19937 random(1);
  struct Case {
    const char* what;
    ModelConfig model;
  };
  const ModelConfig plain = small_model();
  std::vector<Case> cases;
  ModelConfig gemma = plain;
  gemma.mlp = MlpKind::geglu;
  gemma.post_norms = true;
  gemma.embedding_scale = std::sqrt(24.0);
  gemma.softcap = 5;
  gemma.final_softcap = 3;
  gemma.score_scale = 0.2;
  gemma.windows = {6, 0};
  gemma.columns = {{"dep_levels", 5}};
  cases.push_back({"gemma", gemma});  // has the most features
  cases.push_back({"llama", plain});
  ModelConfig older = plain;
  older.norm = NormKind::layer;
  older.mlp = MlpKind::gelu;
  older.tied_head = false;
  older.fused_mlp = false;
  older.kv_heads = 1;
  cases.push_back({"gpt", older});
  ModelConfig clustered = plain;  // small moves do not change the picks
  clustered.routes = {{3, 4, RouteRule::query_head}, {2, 6}};
  clustered.windows = {0, 20};
  cases.push_back({"clustered", clustered});
  size_t number = 0;
  for (const Case& c : cases) {
    for (const char* spec : {"xla", "reference"}) {
      if (!testing::takes_case(number++, 2 * cases.size())) continue;
      SCOPED_TRACE(std::string(c.what) + " " + spec);
      const Row rows = joined_rows({draw_row(random, 23, 40, {17, 9, 5}),
                                    draw_row(random, 23, 40, {40})});
      ASSERT_NO_FATAL_FAILURE(set(c.model, spec, rows, 2));
      s_.recompute = c.model.fused_mlp;
      s_.drops_barriers = number % 2 == 0;
      check_gradients(random);
    }
  }
}

// Specs, MLP forms, what is saved, and tile sizes do not change the model.
TEST_F(Model, MeansTheSameInEveryForm) {
  std::mt19937 random(2);
  const Row rows = joined_rows({draw_row(random, 23, 40, {17, 9, 5}),
                                draw_row(random, 23, 40, {1, 38})});
  ModelConfig m = small_model();
  m.windows = {0, 7};
  m.routes = {{}, {3, 2}};
  ASSERT_NO_FATAL_FAILURE(set(m, "reference", rows, 2));
  const std::vector<Numbers> at = draw_parameters(random);
  const Expected want = expected(at);
  size_t number = 0;
  for (const bool fused : {true, false}) {
    for (const bool recompute : {true, false}) {
      for (const int tile : {8, 32}) {
        if (!testing::takes_case(number++, 8)) continue;
        m.fused_mlp = fused;
        ASSERT_NO_FATAL_FAILURE(set(m, "xla", rows, 2, {tile, 16}));
        s_.recompute = recompute;
        s_.drops_barriers = tile == 8;
        // Twelve chunks of 7 of the 80 rows, or three of 32.
        if (recompute) s_.max_logits = 23 * (tile == 8 ? 7 : 36);
        expect_same(want, run(true, at));
      }
    }
  }
}

TEST_F(Model, APackedRowIsItsDocumentsApart) {
  ModelConfig m = small_model();
  // Blocks of one key: larger ones lie differently in a row and in a document.
  m.routes = {{}, {6, 1}};
  check_packed_row(m, "xla");
}

class StepMemory : public testing::CpuPlugin {
 protected:
  // The plugin's number, without arguments and results.
  int64_t temporaries(const TrainOptions& o) const {
    auto text = Trainer::program_text(o);
    EXPECT_TRUE(text) << text.error().message;
    auto program = pjrt::compile(*client_, device(), *text);
    EXPECT_TRUE(program) << program.error().message;
    auto executable = program->executable();
    EXPECT_TRUE(executable) << executable.error().message;
    auto memory = executable->memory();
    EXPECT_TRUE(memory) << memory.error().message;
    return memory->temporary;
  }
};

// While one block runs backward, the others keep only their inputs. A compiler
// that merged the recomputation with the forward pass would save no memory.
TEST_P(StepMemory, IsLessWhereBlocksAreComputedAgain) {
  TrainOptions o;
  o.model.vocab = o.model.width = 64;
  o.model.layers = 3;
  o.spec = *find_layer_spec("xla");
  o.tokens = 512;
  o.tile = {64, 64};
  int64_t kept = 0;
  const auto work = model_work(o);
  ASSERT_TRUE(work) << work.error().message;
  for (const SlotWork& each : *work) kept += each.bytes.kept;
  const int64_t input = 4 * o.tokens * o.model.width;
  const int64_t whole = temporaries(o);
  o.recompute = true;
  EXPECT_LE(temporaries(o),
            whole - (o.model.layers - 1) * (kept / o.model.layers - input));
}

TESSERA_FOR_CPU_PLUGINS(StepMemory);

TEST(LayerSpec, MustFillEverySlot) {
  for (size_t i = 0; i < kSlots; ++i) {
    const auto slot = static_cast<Slot>(i);
    LayerSpec spec = *find_layer_spec("xla");
    spec.of(slot) = "";
    auto none = model_parameters(small_model(), spec);
    ASSERT_FALSE(none);
    EXPECT_EQ(none.error().message,
              "[model] a spec must fill every slot, found none for " +
                  std::string(to_string(slot)));
    spec.of(slot) = "cudnn";
    none = model_parameters(small_model(), spec);
    ASSERT_FALSE(none);
    EXPECT_NE(none.error().message.find("'cudnn'"), std::string::npos)
        << none.error().message;
  }
  EXPECT_FALSE(find_layer_spec("gpu"));
}

TEST(ModelJson, ReadsWhatItWrites) {
  ModelConfig m = small_model();
  m.windows = {0, 7};
  m.mlp = MlpKind::geglu;
  m.norm = NormKind::layer;
  m.final_softcap = 30;
  m.tied_head = false;
  m.columns = {{"node_type", 40}, {"dep_levels", 7}};
  m.routes = {{4, 64}, {}, {2, 16, RouteRule::query_head}};
  auto again = parse_model_config(to_json(m));
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(*again, m);
  const std::pair<const char*, const char*> bad[] = {
      {R"({"layers": 0})",
       "[model] layers must be an integer of 1 to 1024, found the integer 0 "
       "for it"},
      {R"({"layers": "2"})",
       "[model] layers must be an integer of 1 to 1024, found the string '2' "
       "for it"},
      {R"({"head_dim": 12})",
       "[model] head_dim must be a multiple of 8, found 12"},
      {R"({"heads": 4, "kv_heads": 3})",
       "[model] kv_heads must divide heads, found 3 for 4"},
      {R"({"depth": 3})",
       "[model] a model has no field of that name, found "
       "'depth'"},
      {R"({"norm": "batch"})",
       "[model] norm must be one of rms, layer, found 'batch'"},
      {R"({"mlp": 3})",
       "[model] mlp must be a string, found the integer 3 for it"},
      {R"({"norm_eps": 0})",
       "[model] norm_eps must be 1e-30 to 1e+30, found 0"},
      {R"({"norm_eps": 1e300})",
       "[model] norm_eps must be 1e-30 to 1e+30, found 1e+300"},
      {R"({"rope_theta": 0.5})",
       "[model] rope_theta must be 1 to 1e+30, found 0.5"},
      {R"({"softcap": 1e-40})",
       "[model] softcap must be 0 or 1e-30 to 1e+30, found 1e-40"},
      {R"({"final_softcap": -1})",
       "[model] final_softcap must be 0 or 1e-30 to 1e+30, found -1"},
      {R"({"score_scale": 1e31})",
       "[model] score_scale must be 0 or 1e-30 to 1e+30, found 1e+31"},
      {R"({"softcap": null})",
       "[model] softcap must be a finite number, found null for it"},
      {R"({"tied_head": 1})",
       "[model] tied_head must be true or false, found the integer 1 for "
       "it"},
      {R"({"windows": [8, -1]})",
       "[model.windows] windows[1] must be an integer of 0 to 1073741824, "
       "found "
       "the integer -1 for it"},
      {R"({"windows": 8})",
       "[model.windows] windows must be a list of at most 1024, found the "
       "integer 8"},
      {R"({"routes": {}})",
       "[model.routes] routes must be a list of at most 1024, found an "
       "object"},
      {R"({"routes": [4]})",
       "[model.routes] routes[0] must be null, or an object of top, block and "
       "rule, found the integer 4"},
      {R"({"routes": [null, {"top": 2}]})",
       "[model.routes] routes[1] must have the field 'block', found none for "
       "it"},
      {R"({"routes": [{"block": 64}]})",
       "[model.routes] routes[0] must have the field 'top', found none for "
       "it"},
      {R"({"routes": [{}]})",
       "[model.routes] routes[0] must have the field 'top', found none for "
       "it"},
      {R"({"routes": [{"top": 0, "block": 64}]})",
       "[model.routes] routes[0].top must be an integer of 1 to 65536, found "
       "the integer 0 for it"},
      {R"({"routes": [{"top": 2, "block": 64.5}]})",
       "[model.routes] routes[0].block must be an integer of 1 to 1073741824, "
       "found the float 64.5 for it"},
      {R"({"routes": [{"top": 4, "block": 64, "rule": "query-tile"}]})",
       "[model.routes] routes[0].rule must be kv-head or query-head, found "
       "'query-tile'"},
      {R"({"routes": [{"top": 4, "block": 64, "rule": 1}]})",
       "[model.routes] routes[0].rule must be a string, found the integer 1 "
       "for it"},
      {R"({"routes": [{"top": 4, "block": 64, "stride": 8}]})",
       "[model.routes] routes[0] must have no other field, found 'stride' for "
       "one"},
      {R"({"vocab": 16777216, "width": 1048576})",
       "[model] the embedding must have at most 2147483647 numbers, found "
       "17592186044416"},
      {R"({"columns": {"doc_ids": 3}})",
       "[model] columns must be of a row's structure, a number a token, found "
       "'doc_ids'"},
      {R"({"columns": {"node_type": 1}})",
       "[model] a column must have 2 to 16777216 ids, found 1 for node_type"},
      {R"({"columns": {"node_type": true}})",
       "[model.columns] columns.node_type must be an integer of 0 to 16777216, "
       "found true for it"},
      {R"({"columns": []})",
       "[model.columns] columns must be an object, found an array of 0 for it"},
      {R"([])",
       "[model] a model must be an object, found an array of 0 for it"},
  };
  for (const auto& [text, why] : bad) {
    auto read = parse_model_config(text);
    ASSERT_FALSE(read) << text;
    EXPECT_EQ(read.error().message, why);
  }
}

}  // namespace
}  // namespace tessera::model
