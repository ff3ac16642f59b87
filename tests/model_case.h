// tests/model_case.h: packed rows of random tokens, and a model's loss and
// gradients for them in float64.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "model/checkpoint.h"
#include "model/mesh.h"
#include "model/plans.h"
#include "model/program.h"
#include "model/spread.h"
#include "pjrt/place.h"
#include "tests/lowering.h"
#include "tests/plugins.h"
#include "tests/stablehlo_shards.h"

namespace tessera::model {

// The last bit of numbers near 1, in float64 and in float32.
inline constexpr double kUlp = 0x1p-52, kUlp32 = 0x1p-23;

using Numbers = std::vector<double>;
using Ints32 = std::vector<int32_t>;

struct Row {
  Ints32 input_ids, target_ids, loss_mask, positions, doc_ids, dep_levels;
};

// Documents of these lengths, then padding.
inline Row draw_row(std::mt19937& random, int64_t vocab, int64_t tokens,
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

inline Row joined_rows(const std::vector<Row>& rows) {
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

inline ModelConfig small_model() {
  ModelConfig out;
  out.vocab = 23;
  out.width = 24;
  out.heads = 4;
  out.kv_heads = 2;
  out.head_dim = 8;
  out.mlp_width = 20;
  return out;
}

// The results of a program, and for each array how far the results of a program
// that sums in another order may be from them.
struct Expected {
  std::vector<Numbers> numbers;
  Numbers apart;
};

// The distance is measured: three times the change of an array when the last
// bits of all inputs change, plus the array's own last bit (once for each of
// the two programs, once for what the draws miss). At most 1024 last bits.
template <class Run>
Expected expected_of(const Run& run, const std::vector<Numbers>& at,
                     double ulp) {
  Expected out = {run(at), {}};
  out.apart.resize(out.numbers.size());
  std::mt19937 random(1);
  for (int draw = 0; draw < 8; ++draw) {
    std::vector<Numbers> near = at;
    for (Numbers& each : near) {
      for (double& v : each) {
        const double bit = v == 0 ? 0 : std::ldexp(ulp, std::ilogb(v));
        v += random() % 2 == 0 ? bit : -bit;
      }
    }
    const std::vector<Numbers> moved = run(near);
    EXPECT_EQ(moved.size(), out.numbers.size());
    for (size_t i = 0; i < moved.size(); ++i) {
      for (size_t j = 0; j < moved[i].size(); ++j) {
        out.apart[i] =
            std::max(out.apart[i], std::abs(moved[i][j] - out.numbers[i][j]));
      }
    }
  }
  for (size_t i = 0; i < out.apart.size(); ++i) {
    double size = 0;
    for (const double v : out.numbers[i]) size = std::max(size, std::abs(v));
    EXPECT_GT(size, 0) << i;
    out.apart[i] = std::min(3 * (out.apart[i] + ulp * size), 1024 * ulp * size);
  }
  return out;
}

inline void expect_same(const Expected& want, const std::vector<Numbers>& got) {
  ASSERT_EQ(want.numbers.size(), got.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_EQ(want.numbers[i].size(), got[i].size());
    for (size_t j = 0; j < got[i].size(); ++j) {
      ASSERT_NEAR(want.numbers[i][j], got[i][j], want.apart[i])
          << i << ", " << j;
    }
  }
}

// The slope of `sum` in the i-th array along a random direction. `due` is that
// of the gradient, `slope` a central difference, and `apart` its distance from
// a central difference of twice the step.
struct Growth {
  double due = 0, slope = 0, apart = 0;
};
inline constexpr double kGrowthStep = 1e-5;
template <class Sum>
Growth growth_along(const Sum& sum, const std::vector<Numbers>& at, size_t i,
                    const Numbers& gradient,
                    const std::function<double()>& draw) {
  Numbers direction(at[i].size());
  double due = 0;
  for (size_t j = 0; j < direction.size(); ++j) {
    direction[j] = draw();
    due += direction[j] * gradient[j];
  }
  const auto difference = [&](double step) {
    double out = 0;
    for (const double sign : {-1.0, 1.0}) {
      std::vector<Numbers> moved = at;
      for (size_t j = 0; j < direction.size(); ++j) {
        moved[i][j] += sign * step * direction[j];
      }
      out += sign * sum(moved);
    }
    return out / (2 * step);
  };
  const double near = difference(kGrowthStep);
  return {due, near, std::abs(difference(2 * kGrowthStep) - near)};
}

class ModelCase : public ::testing::Test {
 protected:
  explicit ModelCase(const char* plugin = "xla_cpu_pjrt") : plugin_(plugin) {}

  void SetUp() override {
    auto plugin = testing::real_plugin(plugin_);
    if (testing::is_absent(plugin)) GTEST_SKIP() << plugin.error().message;
    auto place = pjrt::open_place(plugin_, 0);
    ASSERT_TRUE(place) << place.error().message;
    place_ = *place;
  }

  // Fills s_ and the integers of a batch; with a mesh, those of one device.
  void set(const ModelConfig& m, const std::string& spec, const Row& rows,
           int64_t batch, Tile tile = {16, 16}, const Mesh& mesh = {},
           int64_t device = 0) {
    s_ = {};
    s_.mesh = mesh;
    const Portion portion = portion_of(mesh, device);
    s_.model = m;
    auto found = find_layer_spec(spec);
    ASSERT_TRUE(found) << found.error().message;
    s_.spec = *found;
    const auto tokens = static_cast<int64_t>(rows.input_ids.size()) / batch;
    if (shards_ && mesh.size(kSeqAxis) > 1) {
      set_spread(rows, batch, tokens, tile, portion);
      return;
    }
    s_.batch = batch / portion.row_parts;
    s_.tokens = tokens / portion.token_parts;
    s_.products = s_.wide = Element::f64;
    const Ints32 counts(static_cast<size_t>(batch),
                        static_cast<int32_t>(tokens));
    Facts all;
    all.doc_ids = rows.doc_ids;
    all.valid_token_counts = counts;
    QueryFacts kept;
    const Facts facts = facts_of(all, portion, kept);
    auto requests = layer_requests(m, s_.batch, s_.tokens, tokens, tile);
    ASSERT_TRUE(requests) << requests.error().message;
    const bool bf16 = has_kernels(s_.spec) || attention_ == Element::bf16;
    auto places = attention_places(
        own_model(m, mesh), s_.spec, bf16 ? Dtype::bf16 : Dtype::f32, *requests,
        facts, kKernelTarget, testing::lowering_reason(tile));
    ASSERT_TRUE(places) << places.error().message;
    s_.places = std::move(*places);
    share_rows(s_);
    integers_.clear();
    for (size_t i = 0; i < s_.places.size(); ++i) {
      s_.places[i].shape.element = attention_;
      if (s_.places[i].kernels) {
        s_.places[i].kernels->element = Element::f64;
        s_.places[i].kernels->call = testing::stablehlo_call_of_any;
      }
      auto made = OwnedBatch::copy((*requests)[i], facts);
      ASSERT_TRUE(made) << made.error().message;
      auto integers = plan_integers(s_.places[i], *made);
      ASSERT_TRUE(integers) << integers.error().message;
      integers_.merge(*integers);
    }
    const auto part = [&](const Ints32& of) {
      return of.empty() ? of : part_of(of, batch, portion);
    };
    integers_["input_ids"] = part(rows.input_ids);
    integers_["target_ids"] = part(rows.target_ids);
    integers_["loss_mask"] = part(rows.loss_mask);
    integers_["positions"] = part(rows.positions);
    integers_["dep_levels"] = part(rows.dep_levels);
  }

  // The same for one device whose tokens are placed by a balance.
  void set_spread(const Row& rows, int64_t batch, int64_t tokens, Tile tile,
                  const Portion& portion) {
    const Ints32 counts(static_cast<size_t>(batch),
                        static_cast<int32_t>(tokens));
    Facts facts;
    facts.doc_ids = rows.doc_ids;
    facts.valid_token_counts = counts;
    auto requests = layer_requests(s_.model, batch, tokens, tokens, tile);
    ASSERT_TRUE(requests) << requests.error().message;
    const Dtype dtype = has_kernels(s_.spec) ? Dtype::bf16 : Dtype::f32;
    auto spread = make_spread(s_.mesh, *shards_,
                              attention_call(s_.model, dtype), *requests);
    ASSERT_TRUE(spread) << spread.error().message;
    auto places = spread_places(*spread, *requests, s_.spec, kKernelTarget,
                                testing::lowering_reason(tile));
    ASSERT_TRUE(places) << places.error().message;
    s_.places = std::move(*places);
    s_.batch = 1;
    s_.tokens = spread->shards.ceilings.front().rows * tile.q;
    s_.products = s_.wide = Element::f64;
    std::vector<BorrowedBatch> batches;
    const auto ok = remake_batches(*requests, facts, batches);
    ASSERT_TRUE(ok) << ok.error().message;
    auto shards = spread_rows(*spread, batches);
    ASSERT_TRUE(shards) << shards.error().message;
    integers_.clear();
    for (size_t i = 0; i < batches.size(); ++i) {
      s_.places[i].shape.element = attention_;
      if (s_.places[i].shard_kernels) {
        s_.places[i].shard_kernels->element = Element::f64;
        s_.places[i].shard_kernels->call = testing::stablehlo_call_of_any;
      }
      auto integers = spread_integers(s_.places[i], batches[i], (*shards)[i]);
      ASSERT_TRUE(integers) << integers.error().message;
      integers_.merge((*integers)[shard_of(portion)]);
    }
    const auto order = token_order(batches[0], (*shards)[0], true);
    for (const auto& [name, column] : {std::pair("input_ids", &rows.input_ids),
                                       {"target_ids", &rows.target_ids},
                                       {"loss_mask", &rows.loss_mask},
                                       {"positions", &rows.positions},
                                       {"dep_levels", &rows.dep_levels}}) {
      integers_[name] = taken(*column, tokens_of(order, portion));
    }
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

  Result<std::vector<pjrt::Buffer>> results(
      const pjrt::Loaded& program, const std::vector<Numbers>& parameters) {
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
    return pjrt::send_and_execute(program, arrays, ms, ms);
  }

  // The results that are float64.
  std::vector<Numbers> run(const pjrt::Loaded& program,
                           const std::vector<Numbers>& parameters) {
    auto found = results(program, parameters);
    EXPECT_TRUE(found) << found.error().message;
    std::vector<Numbers> out;
    for (const pjrt::Buffer& b : *found) {
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

  // Loss and gradients. `ulp` is the last bit of the coarsest type, in this
  // program or in one that is compared to it.
  Expected expected(const std::vector<Numbers>& parameters, double ulp = kUlp) {
    const pjrt::Loaded program = compiled(true);
    return expected_of(
        [&](const std::vector<Numbers>& at) { return run(program, at); },
        parameters, ulp);
  }

  // Loss and gradients are sums over tokens, and no document sees another.
  void check_packed_row(const ModelConfig& m, const char* spec,
                        double ulp = kUlp) {
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
    for (Ints32* each : {&packed.input_ids, &packed.target_ids,
                         &packed.loss_mask, &packed.positions}) {
      each->resize(40, 0);
    }
    packed.doc_ids.resize(40, -1);

    ASSERT_NO_FATAL_FAILURE(set(m, spec, packed, 1));
    const std::vector<Numbers> at = draw_parameters(random);
    const Expected together = expected(at, ulp);
    std::vector<Numbers> sum;
    for (const Row& row : apart) {
      ASSERT_NO_FATAL_FAILURE(set(m, spec, row, 1));
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

  const char* plugin_;
  pjrt::Place place_;
  // The type of attention's arrays, if the spec has a choice; the CPU kernels
  // do not take float64.
  Element attention_ = Element::f64;
  // Set if a balance places the tokens on devices.
  std::optional<TrainShards> shards_;
  StepShape s_;
  std::map<std::string, Ints32> integers_;
};

}  // namespace tessera::model
