// model/mesh_test.cc: what devices add up, and a step's loss and gradients over
// several of them in float64, beside those of one device.
#include "model/mesh.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

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

  Found on_one(const std::vector<Numbers>& at) {
    const pjrt::Loaded program = compiled(true);
    auto found = results(program, at);
    EXPECT_TRUE(found) << found.error().message;
    return read(*found);
  }

  // Of each device, after set() of the rows of all.
  std::vector<Found> on_mesh(const ModelConfig& m, const char* spec,
                             const Row& rows, int64_t batch, const Mesh& mesh,
                             const std::vector<Numbers>& at,
                             Tile tile = {16, 16}) {
    const int64_t devices = mesh.devices();
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
      auto shapes = model_parameters(m, s_.spec);
      for (size_t i = 0; i < at.size(); ++i) {
        send(d, {Dtype::f64, (*shapes)[i].shape}, at[i].data());
      }
      for (const xla::Argument& a : batch_arguments(s_)) {
        send(d, {Dtype::i32, a.type.dims}, integers_.at(a.name).data());
      }
    }
    s_.recompute = recompute_;
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
    return out;
  }

  bool recompute_ = false;
};

// Of rows that count unequally, one of them nothing: a device without a token
// adds nothing, and the mean is that of all tokens.
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
  struct Case {
    const char *spec, *mesh;
    bool recompute;
  };
  size_t number = 0;
  std::string one_of;
  std::vector<Numbers> at;
  Found one;
  for (const Case& c : {Case{"xla", "data=2,seq=2", true},
                        {"xla", "data=4", false},
                        {"xla", "seq=2", false},
                        {"reference", "seq=2,data=2", false}}) {
    if (number++ % testing::case_stride() != 0) continue;
    SCOPED_TRACE(std::string(c.spec) + " on " + c.mesh);
    const Mesh mesh = *parse_mesh(c.mesh);
    if (one_of != c.spec) {
      ASSERT_NO_FATAL_FAILURE(set(m, c.spec, rows, 4));
      at = draw_parameters(random);
      one = on_one(at);
      one_of = c.spec;
    }
    recompute_ = c.recompute;
    const std::vector<Found> all = on_mesh(m, c.spec, rows, 4, mesh, at);
    ASSERT_EQ(all.size(), static_cast<size_t>(mesh.devices()));
    int64_t tiles = 0;
    for (const Found& each : all) {
      expect_same(one.numbers, each.numbers);
      EXPECT_EQ(each.numbers, all[0].numbers);  // to the bit
      tiles += each.tiles;
    }
    EXPECT_EQ(tiles, one.tiles);
  }
}

// What our TPU kernels compute in their place, each device by its own lists.
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
  const Found one = on_one(at);
  for (const Found& each :
       on_mesh(m, "tpu", rows, 2, {{{"data", 2}}}, at, {128, 128})) {
    expect_same(one.numbers, each.numbers);
  }
}

INSTANTIATE_TEST_SUITE_P(Cpu, KernelMesh, ::testing::Values("xla_cpu_pjrt"),
                         testing::plugin_name);
INSTANTIATE_TEST_SUITE_P(Cpu, MeshModel,
                         ::testing::Values("xla_cpu_pjrt",
                                           "lammps_jax_pjrt_cpu"),
                         testing::plugin_name);

class DeviceSums : public testing::CpuPlugin {};

// In the order of the devices, in float32: the same additions here.
TEST_P(DeviceSums, AreInOneOrder) {
  std::mt19937 random(11);
  const std::vector<xla::Dims> shapes = {{3, 5}, {}, {7}, {2, 2, 2}, {1}};
  for (const int64_t devices : {2, 3, 4}) {
    auto on = pjrt::open_devices(GetParam(), 0, devices);
    ASSERT_TRUE(on) << on.error().message;
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
          w.module("sums", sum_over_devices(w, devices, terms, most), spread);
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

// A CPU has as many devices as are asked for, unless it was told how many.
TEST_P(DeviceSums, NeedTheirDevices) {
  auto some =
      pjrt::open_devices(GetParam(), 1, 4, {{"cpu_device_count", int64_t{4}}});
  ASSERT_FALSE(some);
  EXPECT_EQ(some.error().message,
            "[mesh] a mesh must have its 4 devices from number 1 on, found 4");
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
  EXPECT_EQ(groups_along(mesh, "seq"), (Groups{{0, 2, 4}, {1, 3, 5}}));
  EXPECT_EQ(groups_along(mesh, "data"), (Groups{{0, 1}, {2, 3}, {4, 5}}));
}

// All that a step sends: the number of tokens, and what it adds up, once there
// and once back.
TEST(MeshStep, SaysHowArraysLieAndWhatIsSent) {
  for (const int64_t devices : {2, 4, 8}) {
    const TrainOptions o = options_on(devices);
    const std::string text = *Trainer::program_text(o);
    auto audit = audit_program(text);
    ASSERT_TRUE(audit) << audit.error().message;
    EXPECT_EQ(audit->partitions, devices);
    const auto parameters = *model_parameters(o.model, o.spec);
    const size_t state = 3 * parameters.size() + 1;  // and rates
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
    // Each parameter and moment gives its memory to what it becomes.
    size_t donated = 0;
    for (size_t at = 0;
         (at = text.find("tf.aliasing_output", at)) != std::string::npos;
         ++at) {
      ++donated;
    }
    EXPECT_EQ(donated, 3 * parameters.size());
  }
}

TEST(MeshStep, RefusesAMeshThatItCannotTake) {
  const auto refused = [](const Mesh& mesh) {
    TrainOptions o = options_on(1);
    o.mesh = mesh;
    auto text = Trainer::program_text(o);
    return text ? std::string() : text.error().message;
  };
  for (const char* axes : {"head=2", "data=2,expert=2"}) {
    EXPECT_EQ(refused(*parse_mesh(axes)),
              std::string("[train] a mesh of a step takes the axes data and "
                          "seq, found '") +
                  axes + "'");
  }
  EXPECT_EQ(refused({{{"data", 2}, {"data", 2}}}),
            "[train] a mesh of a step takes the axes data and seq, found "
            "'data=2,data=2'");
  EXPECT_EQ(refused({{{"data", 0}}}),
            "[train] an axis must have 1 to 4096 devices, found 'data=0'");
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
