// model/mesh_test.cc: sums over devices, and a step's loss and gradients on
// several devices in float64, compared with one device.
#include "model/mesh.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <numeric>
#include <random>

#include "base/threads.h"
#include "model/step_plan.h"
#include "tests/cpu_plugin.h"
#include "tests/model_case.h"
#include "tests/random_case.h"

namespace tessera::model {
namespace {

constexpr int64_t kVocab = 23;

class MeshModel : public ModelCase,
                  public ::testing::WithParamInterface<const char*> {
 protected:
  MeshModel() : ModelCase(GetParam()) {}

  struct Found {
    std::vector<Numbers> numbers;  // loss, gradients
    int64_t tiles = 0;
  };

  static Found read(const std::vector<pjrt::Buffer>& results) {
    Found out;
    for (const pjrt::Buffer& b : results) {
      int64_t n = 1;
      for (const int64_t d : b.type().dims) n *= d;
      if (b.type().dtype == Dtype::i32) {
        int32_t tiles = 0;
        EXPECT_TRUE(pjrt::to_host(b, &tiles, 4));
        out.tiles += tiles;
        continue;
      }
      out.numbers.emplace_back(n);
      EXPECT_TRUE(pjrt::to_host(b, out.numbers.back().data(), 8 * n));
    }
    return out;
  }

  struct One {
    Expected numbers;
    int64_t tiles = 0;
  };
  One on_one(const std::vector<Numbers>& at) {
    const pjrt::Loaded program = compiled(true);
    const auto found_at = [&](const std::vector<Numbers>& moved) {
      auto found = results(program, moved);
      EXPECT_TRUE(found) << found.error().message;
      return read(*found);
    };
    One out;
    out.numbers = expected_of(
        [&](const auto& moved) {
          auto found = found_at(moved);
          if (out.tiles == 0) out.tiles = found.tiles;  // of the first, `at`
          return std::move(found.numbers);
        },
        at, kUlp);
    return out;
  }

  // Gives each device whole gradients, joined from its partners' parts.
  static void join_parts(const Mesh& mesh,
                         const std::vector<ModelParameter>& shapes,
                         std::vector<Found>& all) {
    const std::vector<Found> parts = all;
    for (const auto& group : groups_along(mesh, {kHeadAxis})) {
      for (size_t i = 0; i < shapes.size(); ++i) {
        if (!is_split(mesh, shapes[i])) continue;
        Numbers whole(static_cast<size_t>(shapes[i].size()));
        for (const int64_t d : group) {
          give_part(shapes[i], parts[static_cast<size_t>(d)].numbers[i + 1],
                    portion_of(mesh, d).head_part, mesh.size(kHeadAxis), whole);
        }
        for (const int64_t d : group) {
          all[static_cast<size_t>(d)].numbers[i + 1] = whole;
        }
      }
    }
  }

  // What each device finds, after set() with the rows of all.
  std::vector<Found> on_mesh(const ModelConfig& m, const char* spec,
                             const Row& rows, int64_t batch, const Mesh& mesh,
                             const std::vector<Numbers>& at,
                             Tile tile = {16, 16}) {
    const int64_t devices = mesh.devices();
    const auto shapes = *model_parameters(m, *find_layer_spec(spec));
    auto on = pjrt::open_devices(GetParam(), 0, devices);
    EXPECT_TRUE(on) << on.error().message;
    std::vector<std::vector<pjrt::Buffer>> sent(static_cast<size_t>(devices));
    const auto send = [&](size_t d, const pjrt::ArrayType& type,
                          const void* data) {
      auto buffer = pjrt::to_device(*on->client, on->devices[d], type, data,
                                    pjrt::DataStays::during_call);
      EXPECT_TRUE(buffer) << buffer.error().message;
      sent[d].push_back(std::move(*buffer));
    };
    for (size_t d = 0; d < sent.size(); ++d) {
      set(m, spec, rows, batch, tile, mesh, static_cast<int64_t>(d));
      const int64_t part = portion_of(mesh, static_cast<int64_t>(d)).head_part;
      for (size_t i = 0; i < at.size(); ++i) {
        const ModelParameter& p = shapes[i];
        const Numbers own = take_part(p, at[i], part, mesh.size(kHeadAxis));
        send(d, {Dtype::f64, part_shape(mesh, p)}, own.data());
      }
      for (const xla::Argument& a : batch_arguments(s_)) {
        send(d, {Dtype::i32, a.type.dims}, integers_.at(a.name).data());
      }
    }
    s_.recompute = recompute_;
    s_.drops_barriers = in_loop_;
    if (max_logits_ > 0) s_.max_logits = max_logits_;
    auto text = loss_program(s_, true);
    EXPECT_TRUE(text) << text.error().message;
    auto audit = audit_program(*text);
    EXPECT_TRUE(audit) << audit.error().message;
    auto program = pjrt::compile(*on->client, on->devices, *text);
    EXPECT_TRUE(program) << program.error().message << *text;
    std::vector<pjrt::Inputs> inputs(sent.size());
    for (size_t d = 0; d < sent.size(); ++d) {
      for (const pjrt::Buffer& b : sent[d]) inputs[d].push_back(&b);
    }
    auto results = pjrt::execute_on_all(*program, inputs);
    EXPECT_TRUE(results) << results.error().message;
    std::vector<Found> out;
    for (const auto& of_device : *results) out.push_back(read(of_device));
    join_parts(mesh, shapes, out);
    return out;
  }

  bool recompute_ = false, in_loop_ = false;
  int64_t max_logits_ = 0;  // of a device at once; 0: all
};

// Rows count unequally, and one has no token that counts. A device without such
// a token adds nothing; the mean is over all tokens.
TEST_P(MeshModel, SumsAreThoseOfOneDevice) {
  std::mt19937 random(7);
  const Row rows = joined_rows({draw_row(random, kVocab, 64, {17, 29, 5}),
                                draw_row(random, kVocab, 64, {64}),
                                draw_row(random, kVocab, 64, {}),
                                draw_row(random, kVocab, 64, {1, 28})});
  ModelConfig m = small_model();
  m.windows = {0, 7};
  m.tied_head = false;
  m.columns = {{"dep_levels", 5}};
  m.vocab = 24;  // divided along head
  max_logits_ = 24 * 40;
  struct Case {
    const char *spec, *mesh;
    bool recompute, clustered = false;
  };
  size_t number = 0;
  std::pair<std::string, bool> one_of;
  std::vector<Numbers> at;
  One one;
  for (const Case& c : {Case{"xla", "data=2,head=2,seq=2", true},
                        {"xla", "data=4", false},
                        {"xla", "seq=2", false},
                        {"xla", "head=2", false},
                        {"reference", "seq=2,data=2", false},
                        {"reference", "head=2,data=2", true},
                        {"reference", "seq=2,head=2", false, true},
                        {"xla", "data=2,head=2,seq=2", false, true}}) {
    if (!testing::takes_case(number++, 8)) continue;
    SCOPED_TRACE(std::string(c.spec) + " on " + c.mesh);
    const Mesh mesh = *parse_mesh(c.mesh);
    m.routes.clear();
    if (c.clustered) m.routes = {{3, 8}, {}};
    if (one_of != std::pair(std::string(c.spec), c.clustered)) {
      ASSERT_NO_FATAL_FAILURE(set(m, c.spec, rows, 4));
      at = draw_parameters(random);
      one = on_one(at);
      one_of = {c.spec, c.clustered};
    }
    recompute_ = in_loop_ = c.recompute;
    const std::vector<Found> all = on_mesh(m, c.spec, rows, 4, mesh, at);
    ASSERT_EQ(all.size(), static_cast<size_t>(mesh.devices()));
    int64_t tiles = 0;
    for (size_t d = 0; d < all.size(); ++d) {
      expect_same(one.numbers, all[d].numbers);
      EXPECT_EQ(all[d].numbers, all[0].numbers);  // to the bit
      if (c.clustered) continue;  // each device has picks of its own heads
      const auto first =
          static_cast<size_t>(first_of_heads(mesh, static_cast<int64_t>(d)));
      EXPECT_EQ(all[d].tiles, all[first].tiles);
      if (first == d) tiles += all[d].tiles;
    }
    if (!c.clustered) {
      EXPECT_EQ(tiles, one.tiles);
    }
  }
}

// Tokens where each balance puts them, with tiles of two sizes, more row tiles
// than devices share evenly, and two masks with the same placement.
TEST_P(MeshModel, TokensLieAsABalanceSays) {
  std::mt19937 random(10);
  const Row rows = joined_rows({draw_row(random, kVocab, 80, {17, 33, 5}),
                                draw_row(random, kVocab, 80, {80}),
                                draw_row(random, kVocab, 80, {}),
                                draw_row(random, kVocab, 80, {1, 60, 19})});
  ModelConfig m = small_model();
  m.windows = {0, 7};
  m.columns = {{"dep_levels", 5}};
  struct Case {
    const char* mesh;
    Balance balance;
    Tile tile = {16, 16};
    bool recompute = false;
  };
  size_t number = 0;
  std::vector<Numbers> at;
  One one;
  for (const Case& c : {Case{"seq=4", Balance::rows},
                        {"seq=4", Balance::tasks},
                        {"data=2,seq=2", Balance::headtail, {8, 16}},
                        {"seq=2,head=2", Balance::rows, {16, 16}, true},
                        {"head=2,data=2,seq=2", Balance::tasks, {16, 8}},
                        {"seq=3", Balance::contiguous, {16, 8}, true}}) {
    if (!testing::takes_case(number++, 6)) continue;
    SCOPED_TRACE(std::string(c.mesh) + ", " +
                 std::string(to_string(c.balance)));
    const Mesh mesh = *parse_mesh(c.mesh);
    shards_.reset();
    ASSERT_NO_FATAL_FAILURE(set(m, "xla", rows, 4, c.tile));
    if (at.empty()) at = draw_parameters(random);
    one = on_one(at);
    shards_.emplace();
    shards_->balance = c.balance;
    recompute_ = in_loop_ = c.recompute;
    const std::vector<Found> all = on_mesh(m, "xla", rows, 4, mesh, at, c.tile);
    ASSERT_EQ(all.size(), static_cast<size_t>(mesh.devices()));
    int64_t tiles = 0;
    for (size_t d = 0; d < all.size(); ++d) {
      expect_same(one.numbers, all[d].numbers);
      EXPECT_EQ(all[d].numbers, all[0].numbers);  // to the bit
      const auto device = static_cast<int64_t>(d);
      if (first_of_heads(mesh, device) == device) tiles += all[d].tiles;
    }
    EXPECT_EQ(tiles, one.tiles);  // no tile is cut or computed twice
  }
}

// Other models, recomputed: layers after a sum, and between divided layers.
TEST_P(MeshModel, HeadsAreDividedInEveryForm) {
  std::mt19937 random(8);
  const Row rows = joined_rows({draw_row(random, kVocab, 40, {17, 9, 5}),
                                draw_row(random, kVocab, 40, {40})});
  ModelConfig gemma = small_model();
  gemma.mlp = MlpKind::geglu;
  gemma.post_norms = true;
  gemma.fused_mlp = false;
  gemma.softcap = 5;
  gemma.final_softcap = 4;
  gemma.embedding_scale = 3;
  gemma.kv_heads = 4;
  gemma.vocab = 24;  // divided; the 23 ids of `older` are whole on both devices
  ModelConfig older = small_model();
  older.norm = NormKind::layer;
  older.mlp = MlpKind::gelu;
  older.fused_mlp = false;
  size_t number = 0;
  for (const ModelConfig& m : {gemma, older}) {
    if (!testing::takes_case(number++, 2)) continue;
    // Four devices with loops; two with barriers, which XLA drops.
    in_loop_ = m.kv_heads == 4;
    const Mesh mesh = *parse_mesh(in_loop_ ? "head=4" : "head=2");
    ASSERT_NO_FATAL_FAILURE(set(m, "xla", rows, 2));
    const std::vector<Numbers> at = draw_parameters(random);
    const One one = on_one(at);
    recompute_ = true;
    for (const Found& each : on_mesh(m, "xla", rows, 2, mesh, at)) {
      expect_same(one.numbers, each.numbers);
      EXPECT_EQ(each.tiles, one.tiles);
    }
  }
}

// The results of our TPU kernels, computed otherwise from a device's own lists.
class KernelMesh : public MeshModel {};

TEST_P(KernelMesh, SumsAreThoseOfTheReference) {
  std::mt19937 random(9);
  const Row rows = joined_rows({draw_row(random, kVocab, 200, {90, 50, 40}),
                                draw_row(random, kVocab, 200, {200})});
  ModelConfig m = small_model();
  m.head_dim = 128;
  m.windows = {70, 0};
  ASSERT_NO_FATAL_FAILURE(set(m, "reference", rows, 2));
  const std::vector<Numbers> at = draw_parameters(random);
  const One one = on_one(at);
  for (const char* mesh : {"data=2", "head=2"}) {
    for (const Found& each :
         on_mesh(m, "tpu", rows, 2, *parse_mesh(mesh), at, {128, 128})) {
      expect_same(one.numbers, each.numbers);
    }
  }
}

// Tokens where a balance puts them: calls pass sums to each other, and memory
// that no call writes is NaN.
TEST_P(KernelMesh, TokensLieAsABalanceSays) {
  std::mt19937 random(12);
  const auto rows_of = [&](int tokens) {
    return joined_rows({draw_row(random, kVocab, tokens, {90, 350, 40}),
                        draw_row(random, kVocab, tokens, {tokens})});
  };
  const Row odd = rows_of(600), even = rows_of(512);
  ModelConfig m = small_model();
  m.head_dim = 64;
  m.windows = {150, 0};
  struct Case {
    const char* mesh;
    Balance balance;
    Tile tile = {128, 128};
    bool recompute = false;
  };
  size_t number = 0;
  std::vector<Numbers> at;
  for (const Case& c : {Case{"seq=4", Balance::rows, {128, 128}, true},
                        {"seq=2", Balance::tasks},
                        {"head=2,seq=2", Balance::tasks, {128, 256}},
                        {"data=2,seq=2", Balance::headtail},
                        {"seq=3", Balance::contiguous, {128, 256}, true}}) {
    if (!testing::takes_case(number++, 5)) continue;
    SCOPED_TRACE(std::string(c.mesh) + ", " +
                 std::string(to_string(c.balance)));
    const Row& rows = c.tile.q == c.tile.kv ? odd : even;
    shards_.reset();
    recompute_ = in_loop_ = false;
    ASSERT_NO_FATAL_FAILURE(set(m, "reference", rows, 2));
    if (at.empty()) at = draw_parameters(random);
    const One one = on_one(at);
    shards_.emplace();
    shards_->balance = c.balance;
    recompute_ = in_loop_ = c.recompute;
    const std::vector<Found> all =
        on_mesh(m, "tpu", rows, 2, *parse_mesh(c.mesh), at, c.tile);
    for (const Found& each : all) {
      expect_same(one.numbers, each.numbers);
      EXPECT_EQ(each.numbers, all[0].numbers);  // to the bit
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, KernelMesh, ::testing::Values("xla_cpu_pjrt"),
                         testing::plugin_name);
INSTANTIATE_TEST_SUITE_P(Cpu, MeshModel,
                         ::testing::Values("xla_cpu_pjrt",
                                           "lammps_jax_pjrt_cpu"),
                         testing::plugin_name);

class DeviceSums : public testing::CpuPlugin {};

// Sums are in the order of the devices, in float32, as they are added here.
TEST_P(DeviceSums, AreInOneOrder) {
  std::mt19937 random(11);
  const std::vector<xla::Dims> shapes = {{3, 5}, {}, {7}, {2, 2, 2}, {1}};
  for (const int64_t devices : {2, 3, 4}) {
    auto on = pjrt::open_devices(GetParam(), 0, devices);
    ASSERT_TRUE(on) << on.error().message;
    const Mesh mesh = {{{"data", devices}}};
    const Writer::Groups groups = groups_along(mesh, {kDataAxis});
    for (const int64_t most : {1, 9, 1000}) {
      SCOPED_TRACE(std::to_string(devices) + ", " + std::to_string(most));
      std::vector<xla::Argument> arguments;
      Writer::Spread spread;
      spread.sizes = {{"data", devices}};
      for (const xla::Dims& dims : shapes) {
        arguments.push_back(
            {"a" + std::to_string(arguments.size()), {Element::f32, dims}});
        spread.arguments.emplace_back(dims.size());
      }
      spread.results = spread.arguments;
      Writer w(arguments);
      Values terms;
      for (const xla::Argument& a : arguments) {
        terms.push_back(w.argument(a.name));
      }
      const std::string text =
          w.module("sums", sum_over_devices(w, groups, terms, most), spread);
      auto program = pjrt::compile(*on->client, on->devices, text);
      ASSERT_TRUE(program) << program.error().message << text;

      std::normal_distribution<float> normal;
      std::vector<std::vector<float>> want(shapes.size());
      std::vector<std::vector<pjrt::Buffer>> sent;
      std::vector<pjrt::Inputs> inputs;
      for (int64_t d = 0; d < devices; ++d) {
        sent.emplace_back();
        for (size_t i = 0; i < shapes.size(); ++i) {
          std::vector<float> own(
              static_cast<size_t>(arguments[i].type.elements()));
          for (float& v : own) v = normal(random);
          want[i].resize(own.size());
          for (size_t j = 0; j < own.size(); ++j) {
            want[i][j] = d == 0 ? own[j] : want[i][j] + own[j];
          }
          auto buffer =
              pjrt::to_device(*on->client, on->devices[static_cast<size_t>(d)],
                              {Dtype::f32, shapes[i]}, own.data(),
                              pjrt::DataStays::during_call);
          ASSERT_TRUE(buffer) << buffer.error().message;
          sent.back().push_back(std::move(*buffer));
        }
      }
      for (const auto& of_device : sent) {
        inputs.emplace_back();
        for (const pjrt::Buffer& b : of_device) inputs.back().push_back(&b);
      }
      auto results = pjrt::execute_on_all(*program, inputs);
      ASSERT_TRUE(results) << results.error().message;
      for (const auto& of_device : *results) {
        for (size_t i = 0; i < shapes.size(); ++i) {
          EXPECT_EQ(floats(of_device[i]), want[i]) << i;
        }
      }
    }
  }
}

// A CPU offers as many devices as are asked for, unless a count is given.
TEST_P(DeviceSums, NeedTheirDevices) {
  auto some =
      pjrt::open_devices(GetParam(), 1, 4, {{"cpu_device_count", int64_t{4}}});
  ASSERT_FALSE(some);
  EXPECT_EQ(some.error().message,
            "[mesh] a mesh must have its 4 devices from number 1 on, found 4");
  auto most = pjrt::open_devices(GetParam(), 0, 4096);
  ASSERT_FALSE(most);
  EXPECT_EQ(most.error().message,
            "[mesh] devices of a mesh on CPUs must have numbers below 1024, "
            "found 4096 from number 0 on");
  // No threads are made for devices that no client has.
  for (const int64_t first : {int64_t{1} << 20, INT64_MAX}) {
    auto beyond = pjrt::open_devices(GetParam(), first, 4);
    ASSERT_FALSE(beyond);
    EXPECT_NE(beyond.error().message.find("a device's number must be less"),
              std::string::npos)
        << beyond.error().message;
    const char* threads = std::getenv("NPROC");
    EXPECT_LE(threads ? std::atoll(threads) : 0,
              pjrt::kMaxDevices + machine_threads());
  }
}

TESSERA_FOR_CPU_PLUGINS(DeviceSums);

TrainOptions options_on(int64_t devices) {
  TrainOptions out;
  out.spec = *find_layer_spec("xla");
  out.rows = 8;
  out.tokens = 64;
  out.tile = {32, 32};
  out.mesh.axes = {{"data", devices}};
  return out;
}

TEST(MeshPortion, IsOfTheDevice) {
  const Portion three = portion_of(*parse_mesh("data=2,head=3,seq=2"), 9);
  EXPECT_EQ(three.row_part, 1);
  EXPECT_EQ(three.head_part, 1);
  EXPECT_EQ(three.token_part, 1);
  EXPECT_EQ(first_of_heads(*parse_mesh("data=2,head=3,seq=2"), 9), 7);
  EXPECT_EQ(groups_along(*parse_mesh("data=2,head=2,seq=2"), {"data", "seq"}),
            (Writer::Groups{{0, 1, 4, 5}, {2, 3, 6, 7}}));
  const Mesh mesh = *parse_mesh("seq=3,data=2");
  std::vector<int32_t> all(4 * 6);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(part_of(all, 4, portion_of(mesh, 1)),
            (std::vector<int32_t>{12, 13, 18, 19}));
  EXPECT_EQ(part_of(all, 4, portion_of(mesh, 4)),
            (std::vector<int32_t>{4, 5, 10, 11}));
  std::vector<float> back(all.size(), -1);
  for (int64_t d = 0; d < 6; ++d) {
    const std::vector<int32_t> part = part_of(all, 4, portion_of(mesh, d));
    put_part({part.begin(), part.end()}, 4, portion_of(mesh, d), back);
  }
  EXPECT_EQ(std::vector<int32_t>(back.begin(), back.end()), all);
  using Groups = Writer::Groups;
  EXPECT_EQ(groups_along(mesh, {"seq"}), (Groups{{0, 2, 4}, {1, 3, 5}}));
  EXPECT_EQ(groups_along(mesh, {"data"}), (Groups{{0, 1}, {2, 3}, {4, 5}}));
}

// All that a step sends: the number of tokens, and each sum there and back.
TEST(MeshStep, SaysHowArraysLieAndWhatIsSent) {
  for (const int64_t devices : {2, 4, 8}) {
    const TrainOptions o = options_on(devices);
    const std::string text = *Trainer::program_text(o);
    auto audit = audit_program(text);
    ASSERT_TRUE(audit) << audit.error().message;
    EXPECT_EQ(audit->partitions, devices);
    const auto parameters = *model_parameters(o.model, o.spec);
    const size_t state = 3 * parameters.size() + 1;  // and the rates
    int64_t numbers = 1;                             // the loss
    for (const ModelParameter& p : parameters) numbers += p.size();
    for (size_t i = 0; i < audit->arguments.size(); ++i) {
      const AuditArray& a = audit->arguments[i];
      EXPECT_EQ(a.part == a.shape, i < state) << a.name;
    }
    for (size_t i = 0; i < audit->results.size(); ++i) {
      const AuditArray& a = audit->results[i];
      EXPECT_EQ(a.part == a.shape, i < state + 1) << a.name;
    }
    int64_t sent = 0;
    for (const AuditCollective& c : audit->collectives) {
      EXPECT_FALSE(c.repeats);
      sent += *c.sent_bytes;
    }
    const int64_t padded = (numbers + devices - 1) / devices * devices;
    EXPECT_EQ(sent, 4 * (devices - 1) * 2 * (padded + devices));
    EXPECT_EQ(audit->collectives.size(), 4U);
    // Each parameter and moment gives its memory to its new value.
    size_t donated = 0;
    for (size_t at = 0;
         (at = text.find("tf.aliasing_output", at)) != std::string::npos;
         ++at) {
      ++donated;
    }
    EXPECT_EQ(donated, 3 * parameters.size());
  }
}

// Along head alone: four sums of [tokens, width] per layer, and the norm's;
// recomputation repeats one of the four. A divided vocabulary adds the rows of
// ids, the head's gradient, three numbers per token, and the devices' numbers.
TEST(MeshStep, SendsSumsOfALayerAlongHeads) {
  for (const auto& [recompute, vocab] :
       {std::pair(false, 23), {true, 23}, {true, 24}}) {
    TrainOptions o = options_on(1);
    o.mesh = *parse_mesh("head=2");
    o.recompute = recompute;
    o.model.vocab = vocab;
    o.xla.plugin = kTpuPlugin;  // its compiler keeps barriers, so no loops
    const std::string text = *Trainer::program_text(o);
    auto audit = audit_program(text);
    ASSERT_TRUE(audit) << audit.error().message;
    int64_t sent = 0;
    for (const AuditCollective& c : audit->collectives) sent += *c.sent_bytes;
    const int64_t sum = o.rows * o.tokens * o.model.width;
    const int64_t divided = vocab == 24 ? 1 : 0;
    const int64_t sums = o.model.layers * (recompute ? 5 : 4) + 2 * divided;
    const int64_t more = divided * (3 * o.rows * o.tokens + 1);
    EXPECT_EQ(sent, 4 * 2 * (sums * sum + more + 2));
    EXPECT_EQ(audit->collectives.size(),
              static_cast<size_t>(2 * (sums + 1) + 4 * divided));
    // Parameters and their moments, in the order of the program.
    const auto parameters = *model_parameters(o.model, o.spec);
    for (size_t i = 0; i < 3 * parameters.size(); ++i) {
      const ModelParameter& p = parameters[i % parameters.size()];
      EXPECT_EQ(audit->arguments[i].shape, p.shape) << p.name;
      EXPECT_EQ(audit->arguments[i].part, part_shape(o.mesh, p)) << p.name;
      EXPECT_EQ(audit->results[i].part, part_shape(o.mesh, p)) << p.name;
    }
  }
}

// A device's part of q, k and v, of gate and up, and of columns.
TEST(ParameterParts, AreWholeHeads) {
  ModelConfig m = small_model();
  m.layers = 1;
  const Mesh mesh = *parse_mesh("head=2");
  m.vocab = 24;
  const ModelParameter table =
      model_parameters(m, *find_layer_spec("xla"))->front();
  EXPECT_TRUE(is_split(mesh, table));
  EXPECT_EQ(part_shape(mesh, table), (std::vector<int64_t>{12, m.width}));
  std::vector<int64_t> numbers(static_cast<size_t>(table.size()));
  std::iota(numbers.begin(), numbers.end(), 0);
  EXPECT_EQ(take_part(table, numbers, 1, 2).front(), 12 * m.width);
  EXPECT_FALSE(is_split(*parse_mesh("head=5"), table));
  m.vocab = 23;  // no mesh divides 23
  const auto parameters = *model_parameters(m, *find_layer_spec("xla"));
  for (const ModelParameter& p : parameters) {
    SCOPED_TRACE(p.name);
    std::vector<int> all(static_cast<size_t>(p.size())), back(all.size(), -1);
    std::iota(all.begin(), all.end(), 0);
    const bool split = p.name.find("linear") != std::string::npos;
    EXPECT_EQ(is_split(mesh, p), split);
    const auto number = [&](int64_t row, int64_t column) {
      return static_cast<int>(row * p.shape.back() + column);
    };
    for (const int64_t n : {0, 1}) {
      const std::vector<int> part = take_part(p, all, n, 2);
      EXPECT_EQ(part.size() * (split ? 2 : 1), all.size());
      give_part(p, part, n, 2, back);
      if (p.name == "layers.0.linear_qkv.weight") {
        // Of q 2 heads of 8, then one head of k and one of v.
        EXPECT_EQ(part[0], number(n * 16, 0));
        EXPECT_EQ(part[16 * 24], number(32 + n * 8, 0));
        EXPECT_EQ(part[24 * 24 + 5], number(48 + n * 8, 5));
      } else if (p.name == "layers.0.linear_fc1.weight") {
        EXPECT_EQ(part[0], number(n * 10, 0));
        EXPECT_EQ(part[10 * 24 + 1], number(20 + n * 10, 1));
      } else if (p.name == "layers.0.linear_proj.weight") {
        EXPECT_EQ(part[16 * 3 + 2], number(3, n * 16 + 2));
      }
    }
    EXPECT_EQ(back, all);
  }
}

TEST(MeshStep, RefusesAMeshThatItCannotTake) {
  const auto refused = [](const Mesh& mesh) {
    TrainOptions o = options_on(1);
    o.mesh = mesh;
    auto text = Trainer::program_text(o);
    return text ? std::string() : text.error().message;
  };
  EXPECT_EQ(refused(*parse_mesh("data=2,copy=2")),
            "[train] a mesh of a step takes the axes data, head and seq, found "
            "'data=2,copy=2'");
  EXPECT_EQ(refused(*parse_mesh("cp:seq=2")),
            "[train] a mesh of a step takes the axes data, head and seq, found "
            "'cp:seq=2'");
  EXPECT_EQ(refused({{{"expert", 2}}}),
            "[mesh] an axis must be one of data, head, seq, copy, found "
            "'expert'");
  EXPECT_EQ(refused(*parse_mesh("head=4")),
            "[train] kv_heads must divide along the axis head, found 2 for "
            "'head=4'");
  EXPECT_EQ(refused(*parse_mesh("head=2")), "");
  EXPECT_EQ(refused({{{"data", 2}, {"data", 2}}}),
            "[mesh] an axis must stand once, found two for 'data'");
  EXPECT_EQ(refused({{{"data", 0}}}),
            "[mesh] an axis must have 1 to 4096 devices, found 'data=0'");
  EXPECT_EQ(refused({{{"data", 4096}, {"seq", 2}}}),
            "[mesh] a mesh may have 4096 devices, found more for "
            "'data=4096,seq=2'");
  EXPECT_EQ(refused({{{"data", 3}}}),
            "[train] rows of a step must divide along the axis data, found 8 "
            "for 'data=3'");
  EXPECT_EQ(refused({{{"seq", 3}}}),
            "[train] tokens of a row must divide along the axis seq, found 64 "
            "for 'seq=3'");
  EXPECT_EQ(refused({{{"data", 8}}}), "");
}

}  // namespace
}  // namespace tessera::model
