// model/model_test.cc: gradients of whole steps against finite differences, in
// float64; two specs and two forms of the MLP against each other; a packed row
// against its documents apart.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "model/plans.h"
#include "model/program.h"
#include "pjrt/place.h"
#include "tests/plugins.h"
#include "tests/random_case.h"

namespace tessera::model {
namespace {

using Numbers = std::vector<double>;
using Ints32 = std::vector<int32_t>;

struct Row {
  Ints32 input_ids, target_ids, loss_mask, positions, doc_ids, dep_levels;
};

// Documents of these lengths, then padding.
Row draw_row(std::mt19937& random, int64_t vocab, int64_t tokens,
             const std::vector<int>& lengths) {
  Row out;
  for (size_t d = 0; d < lengths.size(); ++d) {
    for (int i = 0; i < lengths[d]; ++i) {
      out.input_ids.push_back(static_cast<int32_t>(random() % vocab));
      out.positions.push_back(i);
      out.dep_levels.push_back(static_cast<int32_t>(random() % 5));
      out.doc_ids.push_back(static_cast<int32_t>(d));
      const bool last = i + 1 == lengths[d];
      out.loss_mask.push_back(last ? 0 : 1);
      out.target_ids.push_back(last ? 0
                                    : static_cast<int32_t>(random() % vocab));
    }
  }
  const auto n = static_cast<size_t>(tokens);
  for (Ints32* each : {&out.input_ids, &out.target_ids, &out.loss_mask,
                       &out.positions, &out.dep_levels}) {
    each->resize(n, 0);
  }
  out.doc_ids.resize(n, -1);
  return out;
}

Row joined_rows(const std::vector<Row>& rows) {
  Row out;
  for (const Row& r : rows) {
    const std::pair<const Ints32*, Ints32*> each[] = {
        {&r.input_ids, &out.input_ids}, {&r.target_ids, &out.target_ids},
        {&r.loss_mask, &out.loss_mask}, {&r.positions, &out.positions},
        {&r.doc_ids, &out.doc_ids},     {&r.dep_levels, &out.dep_levels},
    };
    for (const auto& [from, to] : each) {
      to->insert(to->end(), from->begin(), from->end());
    }
  }
  return out;
}

class Model : public ::testing::Test {
 protected:
  void SetUp() override {
    auto plugin = testing::real_plugin("xla_cpu_pjrt");
    if (testing::is_absent(plugin)) GTEST_SKIP() << plugin.error().message;
    auto place = pjrt::open_place("xla_cpu_pjrt", 0);
    ASSERT_TRUE(place) << place.error().message;
    place_ = *place;
  }

  // Fills s_ and what a batch brings.
  void set(const ModelConfig& m, const std::string& spec, const Row& rows,
           int64_t batch, Tile tile = {16, 16}) {
    s_ = {};
    s_.model = m;
    auto found = find_layer_spec(spec);
    ASSERT_TRUE(found) << found.error().message;
    s_.spec = *found;
    s_.batch = batch;
    s_.tokens = static_cast<int64_t>(rows.input_ids.size()) / batch;
    s_.products = s_.wide = Element::f64;
    Facts facts;
    facts.doc_ids = rows.doc_ids;
    auto requests = layer_requests(m, s_.batch, s_.tokens, tile);
    ASSERT_TRUE(requests) << requests.error().message;
    auto places = attention_places(m, Dtype::f32, *requests, facts);
    ASSERT_TRUE(places) << places.error().message;
    s_.places = std::move(*places);
    integers_.clear();
    for (size_t i = 0; i < s_.places.size(); ++i) {
      s_.places[i].shape.element = Element::f64;
      auto made = OwnedBatch::copy((*requests)[i], facts);
      ASSERT_TRUE(made) << made.error().message;
      auto integers = plan_integers(s_.places[i], *made);
      ASSERT_TRUE(integers) << integers.error().message;
      integers_.merge(*integers);
    }
    integers_["input_ids"] = rows.input_ids;
    integers_["target_ids"] = rows.target_ids;
    integers_["loss_mask"] = rows.loss_mask;
    integers_["positions"] = rows.positions;
    integers_["dep_levels"] = rows.dep_levels;
  }

  std::vector<Numbers> draw_parameters(std::mt19937& random) {
    auto parameters = model_parameters(s_.model, s_.spec);
    EXPECT_TRUE(parameters);
    std::normal_distribution<double> normal;
    std::vector<Numbers> out;
    for (const ModelParameter& p : *parameters) {
      out.emplace_back();
      const double deviation = p.deviation > 0 ? 3 * p.deviation : 0.3;
      for (int64_t i = 0; i < p.size(); ++i) {
        out.back().push_back(p.fill + deviation * normal(random));
      }
    }
    return out;
  }

  pjrt::Loaded compiled(bool gradients) {
    auto text = loss_program(s_, gradients);
    EXPECT_TRUE(text) << text.error().message;
    auto loaded = pjrt::compile(*place_.client, *place_.device, *text);
    EXPECT_TRUE(loaded) << loaded.error().message << *text;
    return std::move(*loaded);
  }

  // The results that are real numbers.
  std::vector<Numbers> run(const pjrt::Loaded& program,
                           const std::vector<Numbers>& parameters) {
    auto shapes = model_parameters(s_.model, s_.spec);
    std::vector<pjrt::HostArray> arrays;
    for (size_t i = 0; i < parameters.size(); ++i) {
      arrays.push_back(
          {{Dtype::f64, (*shapes)[i].shape}, parameters[i].data(), nullptr});
    }
    for (const xla::Argument& a : batch_arguments(s_)) {
      arrays.push_back(
          {{Dtype::i32, a.type.dims}, integers_.at(a.name).data(), nullptr});
    }
    double ms = 0;
    auto results = pjrt::send_and_execute(program, arrays, ms, ms);
    EXPECT_TRUE(results) << results.error().message;
    std::vector<Numbers> out;
    for (const pjrt::Buffer& b : *results) {
      if (b.type().dtype != Dtype::f64) continue;
      int64_t n = 1;
      for (const int64_t d : b.type().dims) n *= d;
      out.emplace_back(n);
      EXPECT_TRUE(pjrt::to_host(b, out.back().data(), 8 * n));
    }
    return out;
  }

  std::vector<Numbers> run(bool gradients,
                           const std::vector<Numbers>& parameters) {
    return run(compiled(gradients), parameters);
  }

  // Along a random direction of each parameter. What a central difference is
  // off by is told by one of twice the step, and by how the loss is rounded.
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
      Numbers direction(at[i].size());
      double slope = 0;
      for (size_t j = 0; j < direction.size(); ++j) {
        direction[j] = normal(random);
        slope += direction[j] * got[i + 1][j];
      }
      const auto difference = [&](double step) {
        double out = 0;
        for (const double sign : {-1.0, 1.0}) {
          std::vector<Numbers> moved = at;
          for (size_t j = 0; j < direction.size(); ++j) {
            moved[i][j] += sign * step * direction[j];
          }
          out += sign * run(losses, moved)[0][0];
        }
        return out / (2 * step);
      };
      const double step = 1e-5;
      const double near = difference(step), far = difference(2 * step);
      // A loss is a sum over tokens of terms of its own size.
      const double rounding =
          64 * 2.3e-16 * (std::abs(loss) + 1) *
          std::sqrt(static_cast<double>(s_.batch * s_.tokens)) / step;
      EXPECT_NEAR(near, slope, std::abs(far - near) + rounding)
          << (*shapes)[i].name;
      EXPECT_GT(std::abs(slope), 4 * (std::abs(far - near) + rounding))
          << (*shapes)[i].name << ": the test sees nothing";
    }
  }

  pjrt::Place place_;
  StepShape s_;
  std::map<std::string, Ints32> integers_;
};

ModelConfig small_model() {
  ModelConfig out;
  out.vocab = 23;
  out.width = 24;
  out.heads = 4;
  out.kv_heads = 2;
  out.head_dim = 8;
  out.mlp_width = 20;
  return out;
}

// The same sums in another order: each result is off by its own rounding, which
// grows with the terms that it is a sum of.
void expect_same(const std::vector<Numbers>& a, const std::vector<Numbers>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    double size = 0;
    for (const double v : a[i]) size = std::max(size, std::abs(v));
    EXPECT_GT(size, 0) << i;
    for (size_t j = 0; j < a[i].size(); ++j) {
      ASSERT_NEAR(a[i][j], b[i][j], 1024 * 2.3e-16 * size) << i << ", " << j;
    }
  }
}

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
  cases.push_back({"gemma", gemma});  // with the most in it
  cases.push_back({"llama", plain});
  ModelConfig older = plain;
  older.norm = NormKind::layer;
  older.mlp = MlpKind::gelu;
  older.tied_head = false;
  older.fused_mlp = false;
  older.kv_heads = 1;
  cases.push_back({"gpt", older});
  size_t number = 0;
  for (const Case& c : cases) {
    for (const char* spec : {"xla", "reference"}) {
      if (number++ % testing::case_stride() != 0) continue;
      SCOPED_TRACE(std::string(c.what) + " " + spec);
      const Row rows = joined_rows({draw_row(random, 23, 40, {17, 9, 5}),
                                    draw_row(random, 23, 40, {40})});
      ASSERT_NO_FATAL_FAILURE(set(c.model, spec, rows, 2));
      s_.recompute = c.model.fused_mlp;
      check_gradients(random);
    }
  }
}

// Specs, forms of the MLP, what is kept, and the size of a tile are no part of
// what a model means.
TEST_F(Model, MeansTheSameInEveryForm) {
  std::mt19937 random(2);
  const Row rows = joined_rows({draw_row(random, 23, 40, {17, 9, 5}),
                                draw_row(random, 23, 40, {1, 38})});
  ModelConfig m = small_model();
  m.windows = {0, 7};
  ASSERT_NO_FATAL_FAILURE(set(m, "reference", rows, 2));
  const std::vector<Numbers> at = draw_parameters(random);
  const std::vector<Numbers> want = run(true, at);
  size_t number = 0;
  for (const bool fused : {true, false}) {
    for (const bool recompute : {true, false}) {
      for (const int tile : {8, 32}) {
        if (number++ % testing::case_stride() != 0) continue;
        m.fused_mlp = fused;
        ASSERT_NO_FATAL_FAILURE(set(m, "xla", rows, 2, {tile, 16}));
        s_.recompute = recompute;
        if (recompute) s_.max_logits = 300;  // chunks of 10 rows
        expect_same(want, run(true, at));
      }
    }
  }
}

// Loss and gradients are sums over tokens, and no document sees another.
TEST_F(Model, APackedRowIsItsDocumentsApart) {
  std::mt19937 random(3);
  const std::vector<Row> apart = {draw_row(random, 23, 40, {17}),
                                  draw_row(random, 23, 40, {9}),
                                  draw_row(random, 23, 40, {11})};
  Row packed;
  double tokens = 0;
  for (size_t d = 0; d < apart.size(); ++d) {
    for (size_t i = 0; i < 40; ++i) {
      if (apart[d].doc_ids[i] < 0) continue;
      packed.input_ids.push_back(apart[d].input_ids[i]);
      packed.target_ids.push_back(apart[d].target_ids[i]);
      packed.loss_mask.push_back(apart[d].loss_mask[i]);
      packed.positions.push_back(apart[d].positions[i]);
      packed.doc_ids.push_back(static_cast<int32_t>(d));
      tokens += apart[d].loss_mask[i];
    }
  }
  for (Ints32* each : {&packed.input_ids, &packed.target_ids, &packed.loss_mask,
                       &packed.positions}) {
    each->resize(40, 0);
  }
  packed.doc_ids.resize(40, -1);

  ASSERT_NO_FATAL_FAILURE(set(small_model(), "xla", packed, 1));
  const std::vector<Numbers> at = draw_parameters(random);
  const std::vector<Numbers> together = run(true, at);
  std::vector<Numbers> sum;
  for (const Row& row : apart) {
    ASSERT_NO_FATAL_FAILURE(set(small_model(), "xla", row, 1));
    const std::vector<Numbers> one = run(true, at);
    double own = 0;
    for (const int32_t counts : row.loss_mask) own += counts;
    if (sum.empty()) {
      sum = one;
      for (Numbers& n : sum) std::fill(n.begin(), n.end(), 0);
    }
    for (size_t i = 0; i < one.size(); ++i) {
      for (size_t j = 0; j < one[i].size(); ++j) {
        sum[i][j] += one[i][j] * own / tokens;
      }
    }
  }
  expect_same(together, sum);
}

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
  EXPECT_FALSE(find_layer_spec("cpu"));
}

TEST(ModelJson, ReadsWhatItWrites) {
  ModelConfig m = small_model();
  m.windows = {0, 7};
  m.mlp = MlpKind::geglu;
  m.norm = NormKind::layer;
  m.final_softcap = 30;
  m.tied_head = false;
  m.columns = {{"node_type", 40}, {"dep_levels", 7}};
  auto again = parse_model_config(to_json(m));
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(*again, m);
  const std::pair<const char*, const char*> bad[] = {
      {R"({"layers": 0})", "layers"},
      {R"({"head_dim": 12})", "multiple of 8"},
      {R"({"heads": 4, "kv_heads": 3})", "3 for 4"},
      {R"({"depth": 3})", "'depth'"},
      {R"({"norm": "batch"})", "'batch'"},
      {R"({"norm_eps": 0})", "norm_eps"},
      {R"({"tied_head": 1})", "true or false"},
      {R"({"windows": [-1]})", "window"},
      {R"({"vocab": 16777216, "width": 1048576})", "embedding"},
      {R"({"columns": {"doc_ids": 3}})", "'doc_ids'"},
      {R"({"columns": {"node_type": 1}})", "node_type"},
      {R"({"columns": []})", "columns"},
      {R"([])", "object"},
  };
  for (const auto& [text, named] : bad) {
    auto read = parse_model_config(text);
    ASSERT_FALSE(read) << text;
    EXPECT_NE(read.error().message.find(named), std::string::npos)
        << read.error().message;
  }
}

}  // namespace
}  // namespace tessera::model
