// model/kernel_attention_test.cc: a model whose attention is by TPU kernels.
// Its program has the mosaic lane's kernels, whose text tests/mosaic executes;
// with their results computed otherwise, the program equals the reference's.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "base/files.h"
#include "lanes/mosaic/settings.h"
#include "model/step_plan.h"
#include "pjrt/compile.h"
#include "pjrt/tpu_here.h"
#include "tessera/mosaic.h"
#include "tessera/train.h"
#include "tests/cpu_exchange.h"
#include "tests/last_bits.h"
#include "tests/lowering.h"
#include "tests/model_case.h"
#include "tests/random_case.h"

namespace tessera::model {
namespace {

ModelConfig kernel_model() {
  ModelConfig out = small_model();
  out.head_dim = 128;
  out.windows = {70, 0};
  return out;
}

class KernelModel : public ModelCase {};

// Rows that are not whole tiles, both more and fewer than a bucket holds.
TEST_F(KernelModel, HasTheGradientsOfTheReference) {
  std::mt19937 random(4);
  struct Case {
    std::vector<std::vector<int>> lengths;
    int64_t tokens;
    Tile tile;
    bool recompute, fused;
    double scale, softcap;
  };
  size_t number = 0;
  for (const Case& c : {
           Case{{{90, 50, 40}, {200}}, 200, {128, 128}, true, true, 0, 0},
           Case{{{1, 100}, {130}, {5, 5}, {64, 64}, {}},
                130,
                {128, 256},
                false,
                false,
                0.05,
                2},
       }) {
    if (!testing::takes_case(number++, 2)) continue;
    SCOPED_TRACE(c.tokens);
    std::vector<Row> drawn;
    for (const std::vector<int>& lengths : c.lengths) {
      drawn.push_back(draw_row(random, 23, c.tokens, lengths));
    }
    const Row rows = joined_rows(drawn);
    const auto batch = static_cast<int64_t>(drawn.size());
    ModelConfig m = kernel_model();
    m.fused_mlp = c.fused;
    m.score_scale = c.scale;
    m.softcap = c.softcap;
    ASSERT_NO_FATAL_FAILURE(set(m, "reference", rows, batch));
    const std::vector<Numbers> at = draw_parameters(random);
    const Expected want = expected(at);
    ASSERT_NO_FATAL_FAILURE(set(m, "tpu", rows, batch, c.tile));
    s_.recompute = c.recompute;
    expect_same(want, run(true, at));
  }
}

struct Step {
  StepShape shape;
  std::vector<Request> requests;
  Facts facts;
};

// A step as a trainer makes it for rows of 200 tokens, without a plugin.
Step kernel_step(const ModelConfig& m, const Row& rows, int64_t batch,
                 Dtype products = Dtype::bf16) {
  Step out;
  out.shape.model = m;
  out.shape.spec = *find_layer_spec("tpu");
  out.shape.batch = batch;
  out.shape.tokens = static_cast<int64_t>(rows.input_ids.size()) / batch;
  out.shape.products = products == Dtype::bf16 ? Element::bf16 : Element::f32;
  out.facts.doc_ids = rows.doc_ids;
  out.requests =
      *layer_requests(m, batch, out.shape.tokens, out.shape.tokens, {256, 128});
  auto places =
      attention_places(m, out.shape.spec, products, out.requests, out.facts,
                       kKernelTarget, testing::lowering_reason({256, 128}));
  EXPECT_TRUE(places) << places.error().message;
  out.shape.places = std::move(*places);
  return out;
}

std::string between(const std::string& text, const std::string& begin,
                    const std::string& end, size_t from = 0) {
  const size_t at = text.find(begin, from);
  if (at == std::string::npos) return "";
  const size_t stop = text.find(end, at);
  return text.substr(at, stop - at);
}

// The one call in the lane's own program must be the same as the step's.
TEST(KernelStep, CallsTheKernelsOfTheLane) {
  std::mt19937 random(5);
  const Row rows = joined_rows(
      {draw_row(random, 23, 200, {90, 50}), draw_row(random, 23, 200, {200})});
  ModelConfig m = kernel_model();
  m.layers = 3;
  const Step step = kernel_step(m, rows, 2);
  const std::string text = *step_program(step.shape);
  const AttentionShape heads = {4, 2, 128, 128, {}, 0};
  const std::string call = "\"stablehlo.custom_call\"(";
  struct Found {
    int64_t place;
    bool backward;
  };
  size_t at = 0;
  // Layers 0 and 2 have the first mask.
  for (const auto& [place, backward] :
       {Found{0, false}, Found{1, false}, Found{0, false}, Found{0, true},
        Found{1, true}, Found{0, true}}) {
    const Request& request = step.requests[static_cast<size_t>(place)];
    const AttentionCall asked = {
        .shape = heads, .dtype = Dtype::bf16, .backward = backward};
    MosaicOptions options =
        mosaic::choose_passes(request, asked).setting.options;
    options.lowering_reason = testing::lowering_reason(request.tile);
    const auto kernel =
        make_mosaic_kernel(request, step.facts, asked, "v6e:1x1", options);
    ASSERT_TRUE(kernel) << kernel.error().message;
    at = text.find(call, at);
    ASSERT_NE(at, std::string::npos);
    const std::string found = text.substr(at, text.find('\n', at) - at);
    at += call.size();
    const std::string config = "backend_config = ";
    const std::string own = between(kernel->program_text, config, "} : (");
    ASSERT_FALSE(own.empty());
    EXPECT_EQ(between(found, config, "} : ("), own);
    const std::string types = between(kernel->program_text, "} : (", " loc(");
    EXPECT_NE(types.find("tensor<2x4x256x128xbf16>"), std::string::npos);
    EXPECT_EQ(between(found, "} : (", " loc("), types);
    // The integers of the batch are arguments of the step.
    const std::string prefix =
        fmt::format("%plan{}.{}.", place, backward ? "backward" : "forward");
    const std::string operands = between(found, "(", ")");
    EXPECT_TRUE(operands.starts_with(
        fmt::format("({0}steps, {0}range, {0}bounds", prefix)))
        << operands;
    EXPECT_TRUE(operands.ends_with(fmt::format("{0}q_ids, {0}kv_ids", prefix)))
        << operands;
  }
  EXPECT_EQ(text.find(call, at), std::string::npos);
}

// One program for all batches; for each batch, the arrays that the lane makes.
TEST(KernelStep, TakesItsListsWhenItRuns) {
  std::mt19937 random(6);
  std::vector<std::string> texts;
  std::vector<std::vector<int32_t>> lists;
  for (const std::vector<int>& lengths :
       {std::vector<int>{90, 50}, std::vector<int>{200},
        std::vector<int>{3, 180}}) {
    const Row rows = draw_row(random, 23, 200, lengths);
    const Step step = kernel_step(kernel_model(), rows, 1);
    texts.push_back(*step_program(step.shape));
    std::map<std::string, Ints32> all;
    for (size_t i = 0; i < step.requests.size(); ++i) {
      const AttentionPlace& place = step.shape.places[i];
      auto batch = BorrowedBatch::make(step.requests[i], step.facts);
      ASSERT_TRUE(batch) << batch.error().message;
      auto integers = plan_integers(place, *batch);
      ASSERT_TRUE(integers) << integers.error().message;
      const MosaicKernel& kernel = place.kernels->backward.kernel;
      const auto own = make_mosaic_arrays(*batch, kernel);
      ASSERT_TRUE(own) << own.error().message;
      EXPECT_EQ(integers->at(place.prefix + "backward.steps"), own->steps);
      EXPECT_EQ(integers->at(place.prefix + "backward.q_ids"), own->q_ids);
      EXPECT_EQ(integers->at(place.prefix + "backward.kv_ids"), own->kv_ids);
      EXPECT_EQ(integers->at(place.prefix + "backward.range"), own->range);
      EXPECT_EQ(integers->at(place.prefix + "backward.bounds"), own->bounds);
      all.merge(*integers);
    }
    for (const xla::Argument& a : batch_arguments(step.shape)) {
      if (!a.name.starts_with("plan")) continue;
      ASSERT_TRUE(all.contains(a.name)) << a.name;
      EXPECT_EQ(static_cast<int64_t>(all[a.name].size()), a.type.elements())
          << a.name;
    }
    lists.push_back(all["plan1.forward.q_ids"]);
  }
  EXPECT_EQ(texts[0], texts[1]);
  EXPECT_EQ(texts[0], texts[2]);
  EXPECT_NE(lists[0], lists[1]);
}

// Forward, backward and optimizer, with donation.
TEST(KernelStep, CompilesForATpu) {
  auto plugin = testing::real_plugin("libtpu");
  if (testing::is_absent(plugin)) GTEST_SKIP() << plugin.error().message;
  ASSERT_TRUE(plugin) << plugin.error().message;
  auto topology = pjrt::make_topology(**plugin, "v6e:1x1");
  ASSERT_TRUE(topology) << topology.error().message;
  std::mt19937 random(7);
  ModelConfig m = kernel_model();
  m.layers = 1;
  m.windows = {70};
  m.softcap = 50;
  const Row row = draw_row(random, 23, 256, {100, 156});
  for (const auto& [products, dim] :
       {std::pair(Dtype::bf16, 128), std::pair(Dtype::f32, 128),
        std::pair(Dtype::bf16, 64)}) {
    m.head_dim = dim;
    const Step step = kernel_step(m, row, 1, products);
    auto made = pjrt::compile(*topology, *step_program(step.shape));
    ASSERT_TRUE(made) << made.error().message;
    auto memory = made->memory();
    ASSERT_TRUE(memory) << memory.error().message;
    int64_t state = 0;
    const auto parameters = model_parameters(m, step.shape.spec);
    ASSERT_TRUE(parameters);
    for (const ModelParameter& p : *parameters) {
      state += 3 * 4 * p.size();
    }
    EXPECT_GE(memory->alias, state);  // the whole state is donated
    EXPECT_GE(memory->argument, memory->alias);
  }
}

TrainOptions options_of(const ModelConfig& m) {
  TrainOptions out;
  out.model = m;
  out.spec = *find_layer_spec("tpu");
  out.precision.products = Dtype::bf16;
  out.rows = 2;
  out.tokens = 200;
  out.tile = {256, 128};
  out.xla.lowering_reason = testing::lowering_reason(out.tile);
  return out;
}

TEST(KernelStep, RefusesWhatTheKernelsHaveNot) {
  const auto why = [](const TrainOptions& o) {
    auto text = Trainer::program_text(o);
    return text ? std::string() : text.error().message;
  };
  EXPECT_EQ(why(options_of(kernel_model())), "");
  EXPECT_EQ(why(options_of(small_model())),
            "[mosaic] head dim must be a multiple of 64 up to 256, found 8");
  TrainOptions exact = options_of(kernel_model());
  exact.precision.products = Dtype::f32;
  EXPECT_EQ(why(exact), "");
  TrainOptions silent = options_of(kernel_model());
  silent.xla.lowering_reason.reset();
  EXPECT_EQ(
      why(silent),
      "[mosaic] a tile below the granule of v6e, 256x256, must come with a "
      "lowering reason, found none for 256x128, which pays 2 times its work");
}

TEST(KernelStep, RunsOnATpuAlone) {
  TESSERA_NEEDS_PLUGINS();
  if (pjrt::is_tpu_here()) GTEST_SKIP() << "a TPU is here";
  TrainOptions o = options_of(kernel_model());
  auto none = Trainer::open(o);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().message,
            "[mosaic] a TPU must be there to run its kernel, found none (to "
            "compile ahead needs none)");
  o.xla.plugin = testing::fake_plugin("faulty");
  auto other = Trainer::open(o);
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().message,
            "[mosaic] a TPU must be there to run its kernel, found a fake "
            "device");
}

Rows packed_rows(std::mt19937& random, int64_t batch, int64_t tokens) {
  Rows out = *Rows::make(RowShape::of(tokens), batch);
  for (int64_t r = 0; r < batch; ++r) {
    const int first = 20 + static_cast<int>(random() % 100);
    const Row row = draw_row(random, 23, tokens, {first, 60});
    out.row(RowColumn::valid_token_count, r)[0] = first + 60;
    out.row(RowColumn::num_docs, r)[0] = 2;
    const std::pair<RowColumn, const Ints32*> columns[] = {
        {RowColumn::input_ids, &row.input_ids},
        {RowColumn::target_ids, &row.target_ids},
        {RowColumn::loss_mask, &row.loss_mask},
        {RowColumn::positions, &row.positions},
        {RowColumn::doc_ids, &row.doc_ids}};
    for (const auto& [column, values] : columns) {
      std::copy(values->begin(), values->end(), out.row(column, r).begin());
    }
  }
  EXPECT_TRUE(check_rows(out, "test"));
  return out;
}

// On a plugin that claims to be a TPU and runs what the kernels compute: a
// trainer passes each batch in the program's arguments.
TEST(KernelStep, TrainsAsTheReferenceDoes) {
  TESSERA_NEEDS_PLUGINS();
  const auto real = testing::real_plugin("xla_cpu_pjrt");
  if (testing::is_absent(real)) GTEST_SKIP() << real.error().message;
  setenv("TESSERA_TEST_WRAPPED_PLUGIN", (*real)->path().c_str(), 1);
  const std::string file =
      ::testing::TempDir() + "/step_" + std::to_string(getpid());
  setenv("TESSERA_TEST_TPU_PROGRAM", file.c_str(), 1);

  std::mt19937 random(8);
  TrainOptions o = options_of(kernel_model());
  const Row any = joined_rows(
      {draw_row(random, 23, 200, {9}), draw_row(random, 23, 200, {9})});
  Step plain = kernel_step(o.model, any, o.rows);
  plain.shape.products = Element::f32;
  plain.shape.optimizer = {o.optimizer.beta1, o.optimizer.beta2,
                           o.optimizer.eps, o.optimizer.weight_decay};
  for (AttentionPlace& place : plain.shape.places) {
    place.kernels->element = Element::f32;
    place.kernels->call = testing::stablehlo_call_of_any;
  }
  ASSERT_TRUE(write_file(file + ".backward", *step_program(plain.shape)));
  o.xla.plugin = testing::fake_plugin("tpu");
  auto trainer = Trainer::open(o);
  std::filesystem::remove(file + ".backward");
  ASSERT_TRUE(trainer) << trainer.error().message;
  TrainOptions dense = o;
  dense.spec = *find_layer_spec("reference");
  dense.precision.products = Dtype::f32;
  dense.xla.plugin = "xla_cpu_pjrt";
  auto needless = Trainer::open(dense);
  ASSERT_FALSE(needless);
  EXPECT_EQ(needless.error().message,
            "[train] a lowering reason goes with tiles of scores on a TPU, "
            "found one for attention by dense on another device");
  dense.xla.lowering_reason.reset();
  ASSERT_TRUE(trainer->lowering());
  EXPECT_EQ(trainer->lowering()->reason, o.xla.lowering_reason);
  auto reference = Trainer::open(dense);
  ASSERT_TRUE(reference) << reference.error().message;
  const StepRates rates = {.learning_rate = 1e-3};
  std::vector<Rows> batches;
  for (int i = 0; i < 3; ++i) {
    batches.push_back(packed_rows(random, o.rows, o.tokens));
  }
  const auto apart =
      testing::apart_by_last_bits(*reference, o.model, batches, rates);
  for (size_t i = 0; i < batches.size(); ++i) {
    auto a = trainer->step(batches[i], rates);
    auto b = reference->step(batches[i], rates);
    ASSERT_TRUE(a) << a.error().message;
    ASSERT_TRUE(b) << b.error().message;
    EXPECT_NEAR(a->loss, b->loss, apart[i].loss);
    EXPECT_EQ(a->tiles_run, 0);
    EXPECT_GT(a->tiles_planned, 0);
  }
  EXPECT_EQ(trainer->counters().compiles, 1);
}

// On four such devices, with tokens where a balance puts them: one program runs
// all batches within their ceilings, and sends what the trainer reports.
TEST(KernelStep, ExchangesAsTheReferenceDoes) {
  TESSERA_NEEDS_PLUGINS();
  const auto real = testing::real_plugin("xla_cpu_pjrt");
  if (testing::is_absent(real)) GTEST_SKIP() << real.error().message;
  setenv("TESSERA_TEST_WRAPPED_PLUGIN", (*real)->path().c_str(), 1);
  const std::string file =
      ::testing::TempDir() + "/spread_" + std::to_string(getpid());
  setenv("TESSERA_TEST_TPU_PROGRAM", file.c_str(), 1);
  std::mt19937 random(9);
  TrainOptions o = options_of(kernel_model());
  o.tokens = 600;
  o.tile = {128, 128};
  o.xla.lowering_reason = testing::lowering_reason(o.tile);
  std::vector<Rows> batches;
  for (int i = 0; i < 3; ++i) {
    batches.push_back(packed_rows(random, o.rows, o.tokens));
  }
  TrainOptions dense = o;
  dense.spec = *find_layer_spec("reference");
  dense.precision.products = Dtype::f32;
  dense.xla.plugin = "xla_cpu_pjrt";
  dense.xla.lowering_reason.reset();
  auto reference = Trainer::open(dense);
  ASSERT_TRUE(reference) << reference.error().message;
  const auto apart = testing::apart_by_last_bits(*reference, o.model, batches,
                                                 {.learning_rate = 1e-3});
  std::vector<StepReport> want;
  for (const Rows& rows : batches) {
    auto told = reference->step(rows, {.learning_rate = 1e-3});
    ASSERT_TRUE(told) << told.error().message;
    want.push_back(*told);
  }
  o.mesh = *parse_mesh("seq=4");
  EXPECT_EQ(Trainer::program_text(o).error().message,
            "[train] the axis seq of the spec tpu takes an exchange of rounds "
            "or ragged, found gather for 'seq=4'");
  o.xla.plugin = testing::fake_plugin("tpu");
  o.xla.client_options = {"cpu_device_count=4"};
  struct Case {
    TileExchange exchange;
    Balance balance;
  };
  size_t number = 0;
  for (const Case& c : {Case{TileExchange::rounds, Balance::rows},
                        {TileExchange::ragged, Balance::tasks}}) {
    if (!testing::takes_case(number++, 2)) continue;
    SCOPED_TRACE(to_string(c.exchange));
    o.shards = TrainShards();
    o.shards->exchange = c.exchange;
    o.shards->balance = c.balance;
    const auto most =
        Trainer::ceilings(o, [&, i = size_t{0}]() mutable -> Result<Rows> {
          return i == batches.size() ? Rows() : batches[i++];
        });
    ASSERT_TRUE(most) << most.error().message;
    o.shards->ceilings = *most;
    auto plain = plan_step(o);
    ASSERT_TRUE(plain) << plain.error().message;
    plain->shape.products = Element::f32;
    for (AttentionPlace& place : plain->shape.places) {
      place.shard_kernels->element = Element::f32;
      place.shard_kernels->call = testing::stablehlo_call_of_any;
    }
    ASSERT_TRUE(
        write_file(file + ".backward",
                   testing::with_cpu_exchanges(*step_program(plain->shape))));
    auto trainer = Trainer::open(o);
    std::filesystem::remove(file + ".backward");
    ASSERT_TRUE(trainer) << trainer.error().message;
    const auto audit = *audit_program(*Trainer::program_text(o));
    int64_t travels = 0;
    for (const AuditCollective& a : audit.collectives) {
      if (a.op == "collective_permute") travels += *a.sent_bytes;
    }
    for (size_t i = 0; i < batches.size(); ++i) {
      auto told = trainer->step(batches[i], {.learning_rate = 1e-3});
      ASSERT_TRUE(told) << told.error().message;
      EXPECT_NEAR(told->loss, want[i].loss, apart[i].loss);
      EXPECT_NEAR(told->gradient_norm, want[i].gradient_norm, apart[i].norm);
      EXPECT_GT(told->tiles_planned, 0);
      EXPECT_GE(told->tiles_max_over_mean, 1);
      if (c.exchange == TileExchange::rounds) {
        EXPECT_EQ(told->sent, travels);
      } else {
        EXPECT_LT(told->sent, testing::capacity_of(audit));
        EXPECT_GT(told->sent, 0);
      }
    }
    EXPECT_EQ(trainer->counters().compiles, 1);
  }
}

// However a trainer is opened.
TEST(KernelAttention, HasATileOfItsOwn) {
  EXPECT_EQ(default_tile(*find_layer_spec("tpu")), kMosaicBackwardTile);
  EXPECT_EQ(default_tile(*find_layer_spec("xla")), (Tile{256, 256}));
}

}  // namespace
}  // namespace tessera::model
