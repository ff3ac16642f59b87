// model/trainer_test.cc: training on packed rows, step by step.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "base/threads.h"
#include "lanes/cpu/ffi_handlers.h"
#include "model/layer.h"
#include "tessera/train.h"
#include "tests/last_bits.h"
#include "tests/plugins.h"
#include "tests/random_case.h"
#include "tests/spans.h"
#include "tests/variable.h"

namespace tessera {
namespace {

// Rows that a small model can learn: token t is followed by 3 t + 1.
Rows learnable(int64_t rows, int64_t tokens, int32_t vocab, uint64_t seed) {
  Rows out = *Rows::make(RowShape::of(tokens), rows);
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t valid = tokens - static_cast<int64_t>(seed + 3 * r) % 7;
    const int64_t cut = valid / 3;
    out.row(RowColumn::valid_token_count, r)[0] = static_cast<int32_t>(valid);
    out.row(RowColumn::num_docs, r)[0] = 2;
    int32_t token = static_cast<int32_t>((seed * 5 + r) % vocab);
    for (int64_t i = 0; i < valid; ++i) {
      const auto at = static_cast<size_t>(i);
      const bool second = i >= cut, last = i + 1 == cut || i + 1 == valid;
      out.row(RowColumn::doc_ids, r)[at] = second;
      out.row(RowColumn::positions, r)[at] =
          static_cast<int32_t>(second ? i - cut : i);
      out.row(RowColumn::input_ids, r)[at] = token;
      token = (3 * token + 1) % vocab;
      out.row(RowColumn::target_ids, r)[at] = last ? 0 : token;
      out.row(RowColumn::loss_mask, r)[at] = last ? 0 : 1;
    }
  }
  EXPECT_TRUE(check_rows(out, "test"));
  return out;
}

// For layers that do not pick: products of whole tiles in every head, two
// forward and five backward.
double attention_flops(const TrainOptions& o, const StepReport& told) {
  const int64_t products = (o.recompute ? 2 + 2 : 2) + 5;
  return static_cast<double>(told.tiles_planned * o.tile.q * o.tile.kv *
                             o.model.heads * o.model.head_dim * 2 * products);
}

// For each spec that a machine without a TPU runs well.
class Train : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    options_.spec = *find_layer_spec(GetParam());
    options_.xla.plugin = plugin();
    auto plugin = testing::real_plugin(options_.xla.plugin);
    if (testing::is_absent(plugin)) GTEST_SKIP() << plugin.error().message;
    if (model::calls_cpu(options_.spec)) {
      auto handlers = cpu::ffi_handlers();
      if (!handlers) GTEST_SKIP() << handlers.error().message;
    }
    options_.model.vocab = 32;
    options_.model.width = 32;
    options_.model.head_dim = 8;
    options_.model.mlp_width = 48;
    options_.model.windows = {0, 24};
    options_.rows = 2;
    options_.tokens = 96;
    options_.tile = {32, 32};
  }

  Rows rows(int64_t step) const { return learnable(2, 96, 32, step); }

  // From the trainer's state on, steps 1 to `steps` of four rows.
  std::vector<testing::Apart> last_bits(Trainer& trainer, int64_t steps,
                                        double rate) const {
    std::vector<Rows> all;
    for (int64_t i = 1; i <= steps; ++i) {
      all.push_back(learnable(4, 96, 32, i));
    }
    return testing::apart_by_last_bits(trainer, options_.model, all,
                                       {.learning_rate = rate});
  }

  void check_logits();
  // The plugin that users get if they name none.
  std::string plugin() const { return default_plugin(options_.spec); }

  TrainOptions options_;
};
// On several devices.
class TrainMesh : public Train {};
// For the spec whose tokens may lie as a balance says.
class TrainSpread : public TrainMesh {};
class TrainClustered : public Train {};

TEST_P(Train, LearnsWithOneCompile) {
  auto trainer = Trainer::open(options_);
  ASSERT_TRUE(trainer) << trainer.error().message;
  double first = 0, last = 0;
  for (int64_t i = 1; i <= 60; ++i) {
    auto told = trainer->step(rows(i), {.learning_rate = 1e-2});
    ASSERT_TRUE(told) << told.error().message;
    EXPECT_EQ(told->step, i);
    EXPECT_EQ(told->tiles_run, told->tiles_planned);
    EXPECT_GT(told->tiles_run, 0);
    EXPECT_EQ(told->attention_flops, attention_flops(options_, *told));
    EXPECT_GT(told->gradient_norm, 0);
    if (i == 1) first = told->loss;
    last = told->loss;
  }
  // An untrained model has a loss near ln 32. Logits are products of rows of
  // length sqrt(32) with rows of the embedding, drawn with deviation 0.02. The
  // loss is larger by half their variance, and differs by the means of all
  // logits and of the targets', each over 32 ids, by at most four deviations.
  const double drawn = 0.02 * std::sqrt(32.0);
  EXPECT_NEAR(first, std::log(32.0),
              drawn * drawn / 2 + 2 * 4 * drawn / std::sqrt(32.0));
  EXPECT_LT(last, 0.1);
  EXPECT_EQ(trainer->counters().compiles, 1);
}

// Whatever ran before, and in another trainer.
TEST_P(Train, GoesOnBitForBitFromACheckpoint) {
  auto whole = Trainer::open(options_);
  ASSERT_TRUE(whole) << whole.error().message;
  std::string middle;
  for (int64_t i = 1; i <= 6; ++i) {
    ASSERT_TRUE(whole->step(rows(i), {.learning_rate = 1e-2}));
    if (i == 3) middle = *whole->checkpoint();
  }
  TrainOptions other = options_;
  other.seed = 7;
  auto resumed = Trainer::open(other);
  ASSERT_TRUE(resumed) << resumed.error().message;
  ASSERT_TRUE(resumed->step(rows(9), {.learning_rate = 1e-2}));
  EXPECT_NE(*resumed->checkpoint(), *whole->checkpoint());
  auto ok = resumed->restore(middle);
  ASSERT_TRUE(ok) << ok.error().message;
  EXPECT_EQ(resumed->steps(), 3);
  for (int64_t i = 4; i <= 6; ++i) {
    ASSERT_TRUE(resumed->step(rows(i), {.learning_rate = 1e-2}));
  }
  EXPECT_EQ(*resumed->checkpoint(), *whole->checkpoint());
}

// A checkpoint is read once. A trainer that was only compiled has no state.
TEST_P(Train, OpensWithACheckpointOrWithNothing) {
  auto first = Trainer::open(options_);
  ASSERT_TRUE(first) << first.error().message;
  ASSERT_TRUE(first->step(rows(1), {.learning_rate = 1e-2}));
  const std::string state = *first->checkpoint();
  options_.seed = 7;
  {
    const Trace trace;
    auto resumed = Trainer::open(options_, state);
    ASSERT_TRUE(resumed) << resumed.error().message;
    auto spans = testing::spans_of(trace);
    EXPECT_EQ(spans["checkpoint read"], 1);
    EXPECT_GT(spans["pjrt to_device"], 0);
    EXPECT_EQ(resumed->steps(), 1);
    EXPECT_EQ(*resumed->checkpoint(), state);
  }
  const Trace trace;
  auto empty = Trainer::compile(options_);
  ASSERT_TRUE(empty) << empty.error().message;
  EXPECT_EQ(testing::spans_of(trace)["pjrt to_device"], 0);
  EXPECT_EQ(empty->counters().compiles, 1);
  EXPECT_EQ(empty->program_key(), first->program_key());
  const std::string none =
      "[train] a trainer must have a state: restore a checkpoint (a step that "
      "fails may take the state with it), found none";
  EXPECT_EQ(empty->step(rows(2), {}).error().message, none);
  EXPECT_EQ(empty->logits(rows(2)).error().message, none);
  EXPECT_EQ(empty->checkpoint().error().message, none);
  ASSERT_TRUE(empty->restore(state));
  EXPECT_EQ(*empty->checkpoint(), state);
}

// A state that was sent is copied, and a state from a step is donated to the
// next: both give the same bits.
TEST_P(Train, AStateThatIsGivenUpIsReadBeforeItIsWrittenOver) {
  std::vector<std::string> plugins = {plugin()};
  if (!model::calls_cpu(options_.spec)) plugins.push_back("xla_cpu_pjrt");
  for (const std::string& name : plugins) {
    SCOPED_TRACE(name);
    options_.xla.plugin = name;
    const auto text = Trainer::program_text(options_);
    ASSERT_TRUE(text) << text.error().message;
    EXPECT_EQ(text->find("tf.aliasing_output") == std::string::npos,
              name == "xla_cpu_pjrt");
    auto straight = Trainer::open(options_);
    auto sent = Trainer::open(options_);
    ASSERT_TRUE(straight && sent);
    const StepRates rates = {.learning_rate = 1e-2};
    for (int64_t i = 1; i <= 4; ++i) {
      ASSERT_TRUE(sent->restore(*sent->checkpoint()));
      auto a = straight->step(rows(i), rates);
      auto b = sent->step(rows(i), rates);
      ASSERT_TRUE(a && b);
      EXPECT_EQ(a->loss, b->loss) << i;
      EXPECT_EQ(*straight->checkpoint(), *sent->checkpoint()) << i;
    }
  }
}

// A step whose run did not begin can be repeated. A step that failed later has
// lost the state: the next call says so, and a checkpoint restores it.
TEST_P(Train, AStepThatFailsKeepsTheStateUntilItsRunBegins) {
  if (options_.spec.name != "xla") GTEST_SKIP() << "of one spec";
  const std::string path = testing::fake_plugin("fails_once");
  const testing::Variable wrapped(
      "TESSERA_TEST_WRAPPED_PLUGIN",
      (*testing::real_plugin("lammps_jax_pjrt_cpu"))->path().c_str());
  options_.xla.plugin = path;
  auto trainer = Trainer::open(options_);
  ASSERT_TRUE(trainer) << trainer.error().message;
  auto* const fail_next = reinterpret_cast<void (*)(int, int)>(
      dlsym(dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD), "fail_next"));
  ASSERT_NE(fail_next, nullptr);
  const std::string before = *trainer->checkpoint();
  const StepRates rates = {.learning_rate = 1e-2};
  ASSERT_TRUE(trainer->step(rows(1), rates));
  const std::string taken = *trainer->checkpoint();
  EXPECT_NE(taken, before);
  // In the order of tests/plugins/fails_once.cc: input, start, end, output,
  // read.
  for (const int fault : {1, 2, 3, 5, 6}) {
    SCOPED_TRACE(fault);
    ASSERT_TRUE(trainer->restore(before));
    fail_next(fault, 0);
    EXPECT_FALSE(trainer->step(rows(1), rates));
    EXPECT_EQ(trainer->steps(), 0);
    const bool began = fault > 2;
    auto after = trainer->checkpoint();
    ASSERT_EQ(after.ok(), !began);
    if (began) {
      EXPECT_NE(after.error().message.find("must have a state"),
                std::string::npos);
      EXPECT_FALSE(trainer->step(rows(1), rates));
      ASSERT_TRUE(trainer->restore(before));
    } else {
      EXPECT_EQ(*after, before);
    }
    ASSERT_TRUE(trainer->step(rows(1), rates));
    EXPECT_EQ(*trainer->checkpoint(), taken);
  }
}

// Compared with the compiler's own attention over every pair.
TEST_P(Train, SpecsAgree) {
  auto listed = Trainer::open(options_);
  TrainOptions dense = options_;
  dense.spec = *find_layer_spec("reference");
  auto plain = Trainer::open(dense);
  ASSERT_TRUE(listed && plain);
  const StepRates rates = {.learning_rate = 1e-3};
  const std::vector<Rows> batches = {rows(1), rows(2), rows(3)};
  const auto apart =
      testing::apart_by_last_bits(*listed, options_.model, batches, rates);
  for (size_t i = 0; i < batches.size(); ++i) {
    auto a = listed->step(batches[i], rates);
    auto b = plain->step(batches[i], rates);
    ASSERT_TRUE(a && b);
    EXPECT_EQ(b->tiles_run, 0);
    // All tiles of two rows of 96 tokens, in each layer.
    StepReport all;
    all.tiles_planned = 2 * options_.model.layers * 3 * 3;
    EXPECT_EQ(b->attention_flops, attention_flops(options_, all));
    EXPECT_LT(a->attention_flops, b->attention_flops);
    EXPECT_NEAR(a->loss, b->loss, apart[i].loss);
    EXPECT_NEAR(a->gradient_norm, b->gradient_norm, apart[i].norm);
  }
}

// Compares a step on a mesh with the same step on one device.
void expect_alike(const StepReport& on_mesh, const StepReport& one,
                  const testing::Apart& apart) {
  EXPECT_NEAR(one.loss, on_mesh.loss, apart.loss);
  // Each parameter counts once, however it is divided.
  EXPECT_NEAR(one.gradient_norm, on_mesh.gradient_norm, apart.norm);
  EXPECT_EQ(on_mesh.tiles_run, on_mesh.tiles_planned);
}

// Parts of the same rows on several devices, under one program.
TEST_P(TrainMesh, DevicesAgreeWithOne) {
  options_.rows = 4;
  auto one = Trainer::open(options_);
  ASSERT_TRUE(one) << one.error().message;
  const auto near = last_bits(*one, 3, 1e-3);
  std::vector<StepReport> want;
  const auto some = [](int64_t step) { return learnable(4, 96, 32, step); };
  for (int64_t i = 1; i <= 3; ++i) {
    auto told = one->step(some(i), {.learning_rate = 1e-3});
    ASSERT_TRUE(told) << told.error().message;
    want.push_back(*told);
  }
  EXPECT_EQ(one->program_specs(), "");
  size_t number = 0;
  for (const char* mesh : {"head=2,seq=2", "data=4", "data=2,seq=2"}) {
    if (!testing::takes_case(number++, 3)) continue;
    SCOPED_TRACE(mesh);
    options_.mesh = *parse_mesh(mesh);
    auto many = Trainer::open(options_);
    ASSERT_TRUE(many) << many.error().message;
    EXPECT_EQ(many->program_specs().size(), 32U);
    for (int64_t i = 1; i <= 3; ++i) {
      const StepReport& a = want[static_cast<size_t>(i - 1)];
      auto b = many->step(some(i), {.learning_rate = 1e-3});
      ASSERT_TRUE(b) << b.error().message;
      expect_alike(*b, a, near[static_cast<size_t>(i - 1)]);
      EXPECT_EQ(b->attention_flops, attention_flops(options_, *b));
      // Half a row is not whole tiles, so more tiles are cut.
      const bool halves = options_.mesh.has("seq");
      EXPECT_TRUE(halves ? b->tiles_run > a.tiles_run
                         : b->tiles_run == a.tiles_run);
      EXPECT_EQ(b->tokens, a.tokens);
    }
    EXPECT_EQ(many->counters().compiles, 1);
  }
}

// Tokens where a balance puts them: the same losses with one program for all
// batches; what is sent is what the program sends.
TEST_P(TrainSpread, ExchangesTilesAsABalanceSays) {
  options_.rows = 4;
  auto one = Trainer::open(options_);
  ASSERT_TRUE(one) << one.error().message;
  const auto near = last_bits(*one, 3, 1e-3);
  std::vector<StepReport> want;
  const auto some = [](int64_t step) { return learnable(4, 96, 32, step); };
  options_.mesh = *parse_mesh("seq=2");
  options_.shards = TrainShards();
  for (int64_t i = 1; i <= 3; ++i) {
    auto told = one->step(some(i), {.learning_rate = 1e-3});
    ASSERT_TRUE(told) << told.error().message;
    want.push_back(*told);
  }
  const auto most = Trainer::ceilings(
      options_, [&, i = int64_t{0}]() mutable -> Result<Rows> {
        return i == 3 ? Rows() : some(++i);
      });
  ASSERT_TRUE(most) << most.error().message;
  ASSERT_EQ(most->size(), 2U);  // one for each mask
  size_t number = 0;
  for (const bool close : {true, false}) {
    if (!testing::takes_case(number++, 2)) continue;
    options_.shards->ceilings.clear();
    if (close) options_.shards->ceilings = *most;
    auto many = Trainer::open(options_);
    ASSERT_TRUE(many) << many.error().message;
    const auto audit = *audit_program(*Trainer::program_text(options_));
    int64_t travels = 0;
    for (const AuditCollective& c : audit.collectives) {
      if (c.op == "collective_permute") travels += *c.sent_bytes;
    }
    for (int64_t i = 1; i <= 3; ++i) {
      const StepReport& a = want[static_cast<size_t>(i - 1)];
      auto b = many->step(some(i), {.learning_rate = 1e-3});
      ASSERT_TRUE(b) << b.error().message;
      expect_alike(*b, a, near[static_cast<size_t>(i - 1)]);
      EXPECT_EQ(b->tiles_run, a.tiles_run);  // no tile is cut
      EXPECT_EQ(b->sent, travels);
      EXPECT_GE(b->tiles_max_over_mean, 1);
      EXPECT_LT(b->tiles_max_over_mean, 1.5);
      EXPECT_TRUE(close ? b->sent < b->all_gather : b->sent >= b->all_gather);
    }
    EXPECT_EQ(many->counters().compiles, 1);
  }
  // A batch that exceeds a ceiling.
  options_.shards->ceilings = *most;
  for (ShardCeilings& c : options_.shards->ceilings) c.kv_rounds = {0};
  auto tight = Trainer::open(options_);
  ASSERT_TRUE(tight) << tight.error().message;
  auto refused = tight->step(some(1), {.learning_rate = 1e-3});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("(give other ceilings)"),
            std::string::npos)
      << refused.error().message;
}

TEST_P(TrainSpread, TokensThatABalancePutsGoOnBitForBit) {
  options_.mesh = *parse_mesh("seq=2,head=2");
  options_.shards = TrainShards();
  options_.shards->balance = Balance::tasks;
  auto whole = Trainer::open(options_);
  ASSERT_TRUE(whole) << whole.error().message;
  std::string middle;
  for (int64_t i = 1; i <= 4; ++i) {
    ASSERT_TRUE(whole->step(rows(i), {.learning_rate = 1e-2}));
    if (i == 2) middle = *whole->checkpoint();
  }
  auto resumed = Trainer::open(options_);
  ASSERT_TRUE(resumed);
  ASSERT_TRUE(resumed->restore(middle));
  for (int64_t i = 3; i <= 4; ++i) {
    ASSERT_TRUE(resumed->step(rows(i), {.learning_rate = 1e-2}));
  }
  EXPECT_EQ(*resumed->checkpoint(), *whole->checkpoint());
}

TEST_P(TrainSpread, RefusesAnExchangeThatItCannotTake) {
  const auto refused = [&](const TrainOptions& o) {
    auto text = Trainer::program_text(o);
    return text ? std::string() : text.error().message;
  };
  options_.shards = TrainShards();
  EXPECT_EQ(refused(options_),
            "[train] an exchange of rounds goes with an axis seq of two "
            "devices or more, found ''");
  options_.mesh = *parse_mesh("seq=2");
  EXPECT_EQ(refused(options_), "");
  TrainOptions other = options_;
  other.spec = *find_layer_spec("reference");
  EXPECT_EQ(refused(other),
            "[train] an exchange of rounds is of the specs xla and tpu, found "
            "reference (which takes gather)");
  other = options_;
  other.model.routes = {{2, 32}};
  EXPECT_EQ(refused(other),
            "[train] a clustered layer pools keys in their order, so that it "
            "takes the exchange gather, found rounds");
  other = options_;
  other.shards->ceilings.resize(3);
  EXPECT_EQ(refused(other),
            "[train] ceilings must be of one mask or of each of 2, found 3");
  other.shards->ceilings = {*parse_shard_ceilings("rows=3"),
                            *parse_shard_ceilings("rows=4")};
  EXPECT_EQ(refused(other),
            "[train] ceilings of all masks must have the same rows, found 4 "
            "for 3");
  other.shards->ceilings = {*parse_shard_ceilings("rows=3")};
  other.tile = {32, 64};
  EXPECT_EQ(refused(other),
            "[train] the ceiling of rows must be whole tiles of keys too, "
            "found 3 rows of 32 for 64");
  other.shards->ceilings.clear();
  EXPECT_EQ(refused(other),
            "[train] tokens of a row must be whole tiles of queries and of "
            "keys where these differ, found 96 for 32x64");
  other = options_;
  other.shards->exchange = TileExchange::ragged;
  auto opened = Trainer::open(other);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().message,
            "[train] a ragged exchange must be on a TPU, found platform cpu");
  other.shards->exchange = TileExchange::automatic;
  EXPECT_EQ(refused(other),
            "[train] shards must have an exchange of rounds or ragged, found "
            "auto");
  const auto words = [](const ShardWords& w) {
    auto read = parse_train_shards(w);
    return read ? std::string() : read.error().message;
  };
  EXPECT_EQ(words({"", "ring", "", "", "", false}),
            "[train] exchange must be gather, rounds or ragged, found 'ring'");
  EXPECT_EQ(words({"rows", "auto", "", "", "", false}),
            "[train] exchange must be gather, rounds or ragged, found 'auto'");
  EXPECT_EQ(words({"rows", "gather", "", "", "", false}),
            "[train] a balance goes with the exchange rounds or ragged, found "
            "gather");
  EXPECT_EQ(words({"", "", "rows=1;size=2", "", "", false}),
            "[shard] a ceiling must be of rows, steps, kv or q, found "
            "'size=2'");
  const auto read =
      *parse_train_shards({"headtail", "", "rows=1;kv=2:3", "", "", false});
  ASSERT_TRUE(read);
  EXPECT_EQ(to_string(read->ceilings), "rows=1;kv=2:3");
  EXPECT_FALSE(*parse_train_shards({"", "", "", "", "", false}));
}

// Bit for bit on the same mesh, and close on another one.
TEST_P(TrainMesh, GoesOnBitForBitOnItsMesh) {
  options_.rows = 4;
  options_.mesh.axes = {{"data", 2}, {"head", 2}, {"seq", 3}};
  const auto some = [](int64_t step) { return learnable(4, 96, 32, step); };
  auto whole = Trainer::open(options_);
  ASSERT_TRUE(whole) << whole.error().message;
  std::string middle;
  double last = 0;
  for (int64_t i = 1; i <= 6; ++i) {
    auto told = whole->step(some(i), {.learning_rate = 1e-2});
    ASSERT_TRUE(told) << told.error().message;
    last = told->loss;
    if (i == 3) middle = *whole->checkpoint();
  }
  EXPECT_NE(middle.find(R"("mesh":"data=2,head=2,seq=3")"), std::string::npos);
  auto resumed = Trainer::open(options_);
  options_.mesh = {};
  auto alone = Trainer::open(options_);
  ASSERT_TRUE(resumed && alone);
  for (Trainer* each : {&*resumed, &*alone}) {
    auto ok = each->restore(middle);
    ASSERT_TRUE(ok) << ok.error().message;
  }
  const StepRates rates = {.learning_rate = 1e-2};
  const auto apart = testing::apart_by_last_bits(
      *alone, options_.model, {some(4), some(5), some(6)}, rates);
  double near = 0;
  for (int64_t i = 4; i <= 6; ++i) {
    ASSERT_TRUE(resumed->step(some(i), rates));
    near = alone->step(some(i), rates)->loss;
  }
  EXPECT_EQ(*resumed->checkpoint(), *whole->checkpoint());
  EXPECT_NEAR(near, last, apart.back().loss);
}

// From one mesh to another, and to none: each run resumes the last.
TEST_P(TrainMesh, ACheckpointOfOneMeshGoesOnOnAnother) {
  options_.rows = 4;
  const auto some = [](int64_t step) { return learnable(4, 96, 32, step); };
  auto whole = Trainer::open(options_);
  ASSERT_TRUE(whole) << whole.error().message;
  const auto near = last_bits(*whole, 6, 1e-2);
  std::string state = *whole->checkpoint();
  int64_t step = 0;
  for (const char* mesh : {"data=2", "head=2", ""}) {
    SCOPED_TRACE(mesh);
    options_.mesh = *mesh == 0 ? Mesh() : *parse_mesh(mesh);
    options_.seed += 1;
    auto next = Trainer::open(options_);
    ASSERT_TRUE(next) << next.error().message;
    auto ok = next->restore(state);
    ASSERT_TRUE(ok) << ok.error().message;
    EXPECT_EQ(next->steps(), step);
    for (int64_t i = 0; i < 2; ++i) {
      ++step;
      auto want = whole->step(some(step), {.learning_rate = 1e-2});
      auto got = next->step(some(step), {.learning_rate = 1e-2});
      ASSERT_TRUE(want && got);
      EXPECT_NEAR(got->loss, want->loss,
                  near[static_cast<size_t>(step - 1)].loss);
    }
    state = *next->checkpoint();
  }
}

// Over devices of a CPU, if no plugin is named.
TEST_P(TrainMesh, TakesThePluginWhoseStepsAreTheSameEachTime) {
  options_.mesh = *parse_mesh("data=2");
  options_.xla.plugin = TrainOptions().xla.plugin;
  options_.model.layers = 1;
  options_.model.windows = {};
  auto trainer = Trainer::open(options_);
  ASSERT_TRUE(trainer) << trainer.error().message;
  EXPECT_NE(trainer->place().plugin.find("lammps_jax_pjrt_cpu"),
            std::string::npos)
      << trainer->place().plugin;
}

// This plugin has wrong gradients now and then; the loss comes before them.
TEST_P(TrainSpread, IsWarnedOfAPluginThatErrs) {
  const auto one = Trainer::open(options_);
  ASSERT_TRUE(one) << one.error().message;
  EXPECT_EQ(one->counters().plugin_warnings, std::vector<std::string>());
  options_.xla.plugin = "xla_cpu_pjrt";
  auto alone = Trainer::open(options_);
  ASSERT_TRUE(alone) << alone.error().message;
  EXPECT_EQ(alone->counters().plugin_warnings, std::vector<std::string>());
  const StepRates rates = {.learning_rate = 1e-3};
  const auto apart =
      testing::apart_by_last_bits(*alone, options_.model, {rows(1)}, rates);
  options_.mesh = *parse_mesh("data=2");
  auto two = Trainer::open(options_);
  ASSERT_TRUE(two) << two.error().message;
  EXPECT_EQ(
      two->counters().plugin_warnings,
      std::vector<std::string>{
          "[train] devices of a mesh must give the right gradients each time, "
          "as those of lammps_jax_pjrt_cpu do, found xla_cpu_pjrt, whose are "
          "wrong once in a while, for 'data=2'"});
  EXPECT_EQ(two->counters().warnings, std::vector<std::string>());
  auto a = two->step(rows(1), rates), b = alone->step(rows(1), rates);
  ASSERT_TRUE(a && b);
  EXPECT_NEAR(a->loss, b->loss, apart.front().loss);
}

// Blocks on a mesh that save only their input recompute the exchanges too.
TEST_P(TrainMesh, RecomputesOnAMesh) {
  options_.rows = 4;
  const auto some = [](int64_t step) { return learnable(4, 96, 32, step); };
  options_.mesh = *parse_mesh("head=2,seq=2");
  auto kept = Trainer::open(options_);
  options_.recompute = true;
  auto again = Trainer::open(options_);
  ASSERT_TRUE(kept && again);
  EXPECT_NE(again->program_key(), kept->program_key());
  const auto near = last_bits(*kept, 3, 1e-2);
  for (int64_t i = 1; i <= 3; ++i) {
    auto want = kept->step(some(i), {.learning_rate = 1e-2});
    auto got = again->step(some(i), {.learning_rate = 1e-2});
    ASSERT_TRUE(want && got);
    const testing::Apart& most = near[static_cast<size_t>(i - 1)];
    EXPECT_NEAR(got->loss, want->loss, most.loss);
    EXPECT_NEAR(got->gradient_norm, want->gradient_norm, most.norm);
    EXPECT_EQ(got->tiles_planned, want->tiles_planned);
    EXPECT_EQ(got->attention_flops, attention_flops(options_, *got));
    EXPECT_LT(want->attention_flops, got->attention_flops);
  }
}

// The loss of a step follows from its logits, which take one compile. Each
// device gives the logits of its rows.
TEST_P(Train, LogitsAreThoseOfTheLoss) {
  options_.model.final_softcap = 10;
  check_logits();
}
TEST_P(TrainMesh, LogitsOfDevicesAreThoseOfTheLoss) {
  options_.mesh.axes = {{"data", 2}, {"head", 2}, {"seq", 3}};
  check_logits();
}
TEST_P(TrainSpread, LogitsComeBackInTheOrderOfTokens) {
  options_.mesh.axes = {{"data", 2}, {"seq", 2}};
  options_.shards = TrainShards();
  options_.shards->balance = Balance::headtail;
  check_logits();
}

// A mesh of more devices than cores. Its rows are long enough that XLA computes
// them in its own threads, where devices wait for each other. XLA fixes
// their number at its first client, so this needs a process of its own.
class MeshBeyondCores : public TrainMesh {};

TEST_P(MeshBeyondCores, Trains) {
  if (::testing::UnitTest::GetInstance()->test_to_run_count() > 2) {
    GTEST_SKIP() << "it takes a process of its own, as ctest gives it";
  }
  unsetenv("NPROC");
  const auto cores = static_cast<uint64_t>(machine_threads());
  const auto devices = static_cast<int64_t>(std::bit_ceil(cores + 1));
  if (devices > 32) GTEST_SKIP() << "its rows would be too long";
  options_.rows = 1;
  options_.tokens = 256 * devices;
  options_.model.width = 192;
  options_.model.head_dim = 32;
  options_.model.mlp_width = 256;
  options_.mesh.axes = {{"seq", devices}};
  auto trainer = Trainer::open(options_);
  ASSERT_TRUE(trainer) << trainer.error().message;
  auto told = trainer->step(learnable(1, 256 * devices, 32, 1), {});
  ASSERT_TRUE(told) << told.error().message;
}

void Train::check_logits() {
  auto trainer = Trainer::open(options_);
  ASSERT_TRUE(trainer) << trainer.error().message;
  ASSERT_TRUE(trainer->step(rows(1), {.learning_rate = 1e-2}));
  for (int64_t i = 2; i <= 3; ++i) {
    const Rows some = rows(i);
    auto logits = trainer->logits(some);
    ASSERT_TRUE(logits) << logits.error().message;
    const auto vocab = static_cast<size_t>(options_.model.vocab);
    const auto& targets = some.column(RowColumn::target_ids);
    ASSERT_EQ(logits->size(), targets.size() * vocab);
    double loss = 0, counted = 0;
    for (size_t t = 0; t < targets.size(); ++t) {
      if (some.column(RowColumn::loss_mask)[t] == 0) continue;
      const float* const z = logits->data() + t * vocab;
      double sum = 0;
      for (size_t v = 0; v < vocab; ++v) sum += std::exp(double{z[v]});
      loss += std::log(sum) - double{z[targets[t]]};
      ++counted;
    }
    loss /= counted;
    const StepRates rates = {.learning_rate = 1e-2};
    const auto apart =
        testing::apart_by_last_bits(*trainer, options_.model, {some}, rates);
    auto told = trainer->step(some, rates);
    ASSERT_TRUE(told) << told.error().message;
    EXPECT_NEAR(told->loss, loss, apart.front().loss);
  }
  EXPECT_EQ(trainer->counters().compiles, 2);
  EXPECT_EQ(trainer->logits(learnable(1, 96, 32, 1)).error().message,
            "[train] a step takes 2 rows of 96 tokens, found 1 of 96");
}

TEST_P(Train, ComputesInBf16WhereAsked) {
  options_.precision.products = Dtype::bf16;
  auto trainer = Trainer::open(options_);
  ASSERT_TRUE(trainer) << trainer.error().message;
  double last = 0;
  for (int64_t i = 1; i <= 60; ++i) {
    auto told = trainer->step(rows(i), {.learning_rate = 1e-2});
    ASSERT_TRUE(told) << told.error().message;
    last = told->loss;
  }
  EXPECT_LT(last, 0.2);
  options_.precision.products = Dtype::f16;
  EXPECT_EQ(Trainer::open(options_).error().message,
            "[train] products must be F32 or BF16, found F16");
}

TEST_P(Train, RefusesWhatDoesNotFit) {
  auto trainer = Trainer::open(options_);
  ASSERT_TRUE(trainer) << trainer.error().message;
  const std::string before = *trainer->checkpoint();
  const auto refused = [&](const Rows& rows, const StepRates& rates) {
    auto told = trainer->step(rows, rates);
    EXPECT_FALSE(told);
    return told ? std::string() : told.error().message;
  };
  EXPECT_EQ(refused(learnable(1, 96, 32, 1), {}),
            "[train] a step takes 2 rows of 96 tokens, found 1 of 96");
  Rows alien = rows(1);
  alien.row(RowColumn::input_ids, 1)[5] = 32;
  EXPECT_EQ(refused(alien, {}),
            "[train] input_ids must be 0 to 31, as the model has ids, found 32 "
            "for row 1, token 5");
  alien.row(RowColumn::input_ids, 1)[5] = -1;
  EXPECT_EQ(refused(alien, {}),
            "[train] input_ids must be 0 to 31, as the model has ids, found -1 "
            "for row 1, token 5");
  Rows unplaced = rows(1);
  for (int32_t& p : unplaced.row(RowColumn::positions, 1)) p = 0;
  EXPECT_EQ(refused(unplaced, {}),
            "[train] positions must rise by 1 within a document, found 0 after "
            "0 for row 1, token 1");
  EXPECT_NE(refused(rows(1), {.learning_rate = std::nan("")}).find("nan"),
            std::string::npos);
  EXPECT_FALSE(trainer->restore("no file"));
  options_.model.mlp_width = 40;
  auto other = Trainer::open(options_);
  ASSERT_TRUE(other);
  auto wrong = trainer->restore(*other->checkpoint());
  ASSERT_FALSE(wrong);
  EXPECT_NE(wrong.error().message.find("of the model"), std::string::npos);
  // The state is unchanged.
  EXPECT_EQ(*trainer->checkpoint(), before);
}

// Layers that pick what they attend to, in one program for all batches.
TEST_P(TrainClustered, LearnsWithOneCompile) {
  TrainOptions o = options_;
  o.model.windows.clear();
  o.model.routes = {{2, 16}, {}};
  o.tile = {16, 16};
  o.rows = 5;  // not a bucket
  auto trainer = Trainer::open(o);
  ASSERT_TRUE(trainer) << trainer.error().message;
  double last = 0;
  int64_t tiles = 0, planned = 0;
  for (int64_t i = 1; i <= 60; ++i) {
    auto told = trainer->step(learnable(5, 96, 32, i), {.learning_rate = 1e-2});
    ASSERT_TRUE(told) << told.error().message;
    // A clustered layer has both KV heads, with fewer tiles than the mask.
    EXPECT_LE(told->tiles_run, told->tiles_planned);
    EXPECT_GT(told->tiles_run, told->tiles_planned / 3);
    tiles += told->tiles_run;
    planned += told->tiles_planned;
    last = told->loss;
  }
  EXPECT_LT(tiles, planned);
  EXPECT_LT(last, 0.1);
  EXPECT_EQ(trainer->counters().compiles, 1);

  Rows torn = learnable(5, 96, 32, 1);
  for (int64_t i = 80; i < 85; ++i) {
    torn.row(RowColumn::doc_ids, 1)[static_cast<size_t>(i)] = 0;
  }
  auto told = trainer->step(torn, {});
  ASSERT_FALSE(told);
  EXPECT_EQ(told.error().message,
            "[train] documents must be runs of tokens that rise where a layer "
            "is clustered, found 0 after 1 for row 1, token 80");
  const std::string state = *trainer->checkpoint();
  o.model.routes = {{3, 16}, {}};
  auto other = Trainer::open(o, state);
  ASSERT_FALSE(other);
  EXPECT_NE(other.error().message.find("of the model"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Specs, Train, ::testing::Values("xla", "cpu"),
                         [](const auto& of) { return std::string(of.param); });
INSTANTIATE_TEST_SUITE_P(Specs, TrainMesh, ::testing::Values("xla", "cpu"),
                         [](const auto& of) { return std::string(of.param); });
INSTANTIATE_TEST_SUITE_P(Specs, TrainSpread, ::testing::Values("xla"),
                         [](const auto& of) { return std::string(of.param); });
INSTANTIATE_TEST_SUITE_P(Specs, MeshBeyondCores,
                         ::testing::Values("xla", "cpu"),
                         [](const auto& of) { return std::string(of.param); });
INSTANTIATE_TEST_SUITE_P(Specs, TrainClustered, ::testing::Values("xla", "cpu"),
                         [](const auto& of) { return std::string(of.param); });

}  // namespace
}  // namespace tessera
