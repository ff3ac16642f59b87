// lanes/mosaic/shard_lane_test.cc: the TPU kernel over a mesh behind a session.
// The plugin says its four devices are TPUs and runs plain attention instead of
// the kernels, over the arrays that these would read.
#include "lanes/mosaic/shard_lane.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/files.h"
#include "lanes/mosaic/shards.h"
#include "run/session_state.h"
#include "tessera/machine.h"
#include "tessera/receipt.h"
#include "tessera/session.h"
#include "tests/attention_case.h"
#include "tests/cpu_exchange.h"
#include "tests/judged_passes.h"
#include "tests/lowering.h"
#include "tests/plugins.h"
#include "tests/resident_run.h"
#include "tests/stablehlo_shards.h"

struct PJRT_Api;

namespace tessera::mosaic {
namespace {

using testing::AttentionArrays;
using testing::AttentionCase;

constexpr Tile kTile = {128, 128};
constexpr int kDevices = 4;
// Values in the order of tests/plugins/fails_once.cc.
enum class Fault : int { none, input, start, end, late, output, read };

// A case whose documents depend on the seed.
AttentionCase packed_case(uint64_t seed = 1, int64_t batch = 1,
                          int64_t tokens = 600) {
  AttentionCase c;
  c.plan.masks = {causal() & documents()};
  c.plan.batch = batch;
  c.plan.q_len = c.plan.kv_len = tokens;
  c.plan.tile = kTile;
  c.plan.doc_ids.emplace();
  for (int64_t i = 0; i < batch * tokens; ++i) {
    const int64_t at = i % tokens;
    const int64_t length = 90 + 30 * static_cast<int64_t>(seed);
    c.plan.doc_ids->push_back(
        at < tokens - 9 ? static_cast<int32_t>(at * at / length / 300) : -1);
  }
  c.shape = {2, 1, 64, 64, {}, 0};
  c.seed = seed;
  return c;
}

AttentionCall call_of(const AttentionCase& c) {
  return {c.shape, c.dtype, c.sinks, true, c.dlse};
}

class MosaicMesh : public ::testing::Test {
 protected:
  void SetUp() override {
    TESSERA_NEEDS_PLUGINS();
    testing::look_in_venv();
    const auto real = testing::real_plugin("xla_cpu_pjrt");
    if (testing::is_absent(real)) GTEST_SKIP() << real.error().message;
    ASSERT_TRUE(real) << real.error().message;
    // A plugin that says it is a TPU, around one that fails when told to,
    // around the real one.
    const std::string fails = testing::fake_plugin("fails_once");
    wrap((*real)->path(), fails);
    plugin_ = fmt::format("{}/tpus_{}.so", ::testing::TempDir(), getpid());
    std::filesystem::copy_file(
        testing::fake_plugin("tpu"), plugin_,
        std::filesystem::copy_options::overwrite_existing);
    wrap(fails, plugin_);
    setenv("TESSERA_TEST_WRAPPED_PLUGIN", (*real)->path().c_str(), 1);
    program_ = fmt::format("{}/plain_mesh_{}", ::testing::TempDir(), getpid());
    setenv("TESSERA_TEST_TPU_PROGRAM", program_.c_str(), 1);
  }
  void TearDown() override {
    if (plugin_.empty()) return;
    find<void (*)(int)>(plugin_, "record_inputs")(0);
    for (const std::string& file :
         {plugin_, program_, program_ + ".backward"}) {
      std::filesystem::remove(file);
    }
  }

  // A fake reads which plugin it wraps when it is first asked for its
  // functions.
  static void wrap(const std::string& inner, const std::string& outer) {
    setenv("TESSERA_TEST_WRAPPED_PLUGIN", inner.c_str(), 1);
    void* library = dlopen(outer.c_str(), RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    using Get = const PJRT_Api* (*)();
    ASSERT_NE(reinterpret_cast<Get>(dlsym(library, "GetPjrtApi"))(), nullptr);
  }

  template <class F>
  static F find(const std::string& plugin, const char* name) {
    void* library = dlopen(plugin.c_str(), RTLD_NOW | RTLD_NOLOAD);
    return library ? reinterpret_cast<F>(dlsym(library, name)) : nullptr;
  }
  int compiled() const {
    return testing::counted(plugin_, "replaced_programs");
  }

  SessionOptions options(const std::string& mesh = "seq=4",
                         Balance balance = Balance::rows) const {
    SessionOptions out;
    out.lane = LaneId::mosaic;
    out.xla.plugin = plugin_;
    out.xla.client_options = {fmt::format("cpu_device_count={}", kDevices)};
    out.xla.lowering_reason = testing::lowering_reason(kTile);
    out.mesh = *parse_mesh(mesh);
    out.shards.balance = balance;
    out.shards.uneven = true;
    return out;
  }

  // What the lane will make for the batch.
  struct Made {
    Shards shards;
    std::vector<ShardKernel> kernels;  // forward, backward
  };
  static Result<Made> make(const Batch& batch, const AttentionCall& call,
                           const SessionOptions& o) {
    ShardOptions of_call = lanes::options_for(o.shards, call);
    of_call.for_tpu = true;
    auto shards = make_shards(batch, o.mesh, of_call);
    if (!shards) return shards.error();
    Made out = {std::move(*shards), {}};
    for (const bool backward : {false, true}) {
      auto made =
          fit_shards(batch, out.shards, lanes::one_direction(call, backward),
                     std::string(find_chip("v6e")->target),
                     {o.xla.lowering_reason, Numbers::any});
      if (!made) return made.error();
      out.kernels.push_back(std::move(made->kernel));
    }
    return out;
  }
  // Writes the programs that the plugin compiles in place of these.
  void write_stablehlo(const Made& made) {
    for (const ShardKernel& kernel : made.kernels) {
      const bool backward = kernel.planned.kernel.call.backward;
      const std::string text = testing::with_cpu_exchanges(
          program_text(kernel, testing::stablehlo_call));
      ASSERT_TRUE(
          write_file(program_ + (backward ? ".backward" : ""), text).ok());
    }
  }

  // Checks both passes against fp64, then that resident arrays give the same
  // bits. Returns the receipt.
  static Result<std::string> judge(Prepared& ready, AttentionArrays& arrays) {
    auto receipt = testing::judged_receipt(ready, arrays);
    if (!receipt) return receipt;
    EXPECT_EQ(
        testing::resident_fault(*ready.state().work, ready.batch(), arrays),
        std::nullopt);
    return receipt;
  }

  std::string plugin_, program_;
};

struct MeshCase {
  const char* mesh;
  Balance balance = Balance::rows;
  TileExchange exchange = TileExchange::rounds;
  int64_t batch = 1;
  AttentionShape shape = {2, 1, 64, 64, {}, 0};
  Dtype dtype = Dtype::f32;
  bool sinks = false, dlse = false;
  bool by_head = false;  // a mask for each K/V head
};

TEST_F(MosaicMesh, JoinedDevicesAreTheReference) {
  const MeshCase cases[] = {
      {.mesh = "seq=4", .sinks = true, .dlse = true},
      {.mesh = "seq=4", .balance = Balance::tasks, .sinks = true},
      {.mesh = "seq=4",
       .balance = Balance::contiguous,
       .exchange = TileExchange::ragged},
      {.mesh = "seq=4", .exchange = TileExchange::gather, .dlse = true},
      {.mesh = "seq=4",
       .balance = Balance::tasks,
       .exchange = TileExchange::automatic},
      {.mesh = "data=2,seq=2", .batch = 3, .dtype = Dtype::bf16},
      {.mesh = "dp:data=2,cp:seq=2", .batch = 2},
      {.mesh = "seq=2,head=2",
       .balance = Balance::headtail,
       .shape = {4, 2, 64, 128, 0.2, 3},
       .sinks = true},
      {.mesh = "copy=2,seq=2", .dlse = true},
      {.mesh = "head=2,seq=2",
       .shape = {4, 2, 64, 64, {}, 0},
       .dlse = true,
       .by_head = true},
  };
  for (size_t i = testing::first_case(std::size(cases)); i < std::size(cases);
       i += testing::case_stride()) {
    const MeshCase& one = cases[i];
    SCOPED_TRACE(one.mesh);
    AttentionCase c = packed_case(i + 1, one.batch);
    if (one.by_head) c.plan.masks.push_back(window(100, 5));
    c.shape = one.shape;
    c.dtype = one.dtype;
    c.sinks = one.sinks;
    c.dlse = one.dlse;
    AttentionArrays arrays(c);
    const auto batch = BorrowedBatch::make(arrays.request, arrays.facts);
    ASSERT_TRUE(batch) << batch.error().message;
    SessionOptions o = options(one.mesh, one.balance);
    o.shards.exchange = one.exchange;
    const auto made = make(*batch, call_of(c), o);
    ASSERT_TRUE(made) << made.error().message;
    write_stablehlo(*made);
    const auto session = Session::open(o);
    ASSERT_TRUE(session) << session.error().message;
    auto ready = session->prepare(*batch, call_of(c));
    ASSERT_TRUE(ready) << ready.error().message;
    const auto receipt = judge(*ready, arrays);
    ASSERT_TRUE(receipt) << receipt.error().message;
    EXPECT_EQ(ready->counters().tiles_run,
              c.shape.heads / batch->plan().heads *
                  static_cast<int64_t>(batch->plan().forward.entries.size()));
    const auto json = nlohmann::json::parse(*receipt);
    EXPECT_EQ(json["lane"]["executed"], "mosaic");
    EXPECT_EQ(json["lane"]["family"], "tpu/mosaic");
    EXPECT_EQ(json["shards"]["mesh"], to_string(o.mesh));
    const bool is_open = one.exchange == TileExchange::automatic;
    EXPECT_EQ(json["shards"]["exchange"],
              to_string(is_open ? TileExchange::ragged : one.exchange));
    EXPECT_EQ(json["shards"]["contract"], made->shards.contract_key);
    EXPECT_EQ(json["lowering"]["chip"], "v6e");
    for (const ShardKernel& kernel : made->kernels) {
      const MosaicKernel& k = kernel.planned.kernel;
      const std::string direction = direction_of(k.call);
      EXPECT_EQ(json["kernels"][direction], k.contract.key);
      EXPECT_NE(k.contract.text.find(json["shards"]["specs"][direction]),
                std::string::npos);
      EXPECT_TRUE(json["settings"].contains(direction)) << json["settings"];
      const auto text = ready->program_text(k.call.backward);
      ASSERT_TRUE(text) << text.error().message;
      EXPECT_EQ(*text, program_text(kernel));
    }
  }
}

// Each device gets exactly the integers of make_mosaic_shard_arrays, in the
// program's order, and its own tiles of q.
TEST_F(MosaicMesh, EachDeviceReadsItsOwn) {
  AttentionArrays arrays(packed_case());
  const AttentionCase& c = arrays.c;
  const auto batch = BorrowedBatch::make(arrays.request, arrays.facts);
  ASSERT_TRUE(batch) << batch.error().message;
  // Devices 0 and 2 hold the same.
  const SessionOptions o = options("copy=2,seq=2", Balance::tasks);
  const auto made = make(*batch, call_of(c), o);
  ASSERT_TRUE(made) << made.error().message;
  write_stablehlo(*made);
  const auto session = Session::open(o);
  ASSERT_TRUE(session) << session.error().message;
  find<void (*)(int)>(plugin_, "record_inputs")(1);
  const auto input =
      find<const std::string* (*)(int, int)>(plugin_, "latest_input");
  auto ready = session->prepare(*batch, call_of(c));
  ASSERT_TRUE(ready) << ready.error().message;
  const auto saved = ready->forward(arrays.forward(true));
  ASSERT_TRUE(saved) << saved.error().message;
  for (const ShardKernel& kernel : made->kernels) {
    const MosaicKernel& k = kernel.planned.kernel;
    if (k.call.backward) {
      const auto ran = ready->backward(*saved, arrays.gradients());
      ASSERT_TRUE(ran) << ran.error().message;
    }
    const auto integers = make_mosaic_shard_arrays(*batch, made->shards, k);
    ASSERT_TRUE(integers) << integers.error().message;
    const auto due = arrays_of(kernel).arguments;
    size_t compared = 0;
    for (int device = 0; device < kDevices; ++device) {
      const auto shard = static_cast<size_t>(device % 2);
      const Shard& own = made->shards.shards[shard];
      for (size_t i = 0; i < due.size(); ++i) {
        const std::string* const found = input(device, static_cast<int>(i));
        ASSERT_NE(found, nullptr);
        const std::string& name = due[i].part.name;
        if (due[i].is_own) {
          const MosaicArray& all = (*integers)[i];
          ASSERT_EQ(all.name, name);
          const size_t bytes = all.values.size() * sizeof(int32_t) / 2;
          ASSERT_EQ(found->size(), bytes) << name;
          const char* const values =
              reinterpret_cast<const char*>(all.values.data());
          EXPECT_EQ(std::memcmp(found->data(), values + shard * bytes, bytes),
                    0)
              << name << " of device " << device;
          ++compared;
        } else if (name == "q") {
          const TensorView q = arrays.forward(true).q;
          const auto row_bytes = static_cast<size_t>(q.dim) * sizeof(float);
          for (int64_t r = 0; r < own.own_rows; ++r) {
            const int64_t token =
                own.rows[static_cast<size_t>(r)].tile * kTile.q;
            const auto* const from =
                static_cast<const char*>(q.data) +
                static_cast<size_t>(token * q.token_stride) * sizeof(float);
            EXPECT_EQ(
                std::memcmp(found->data() +
                                static_cast<size_t>(r * kTile.q) * row_bytes,
                            from, row_bytes),
                0)
                << "tile " << r << " of device " << device;
            ++compared;
          }
        }
      }
    }
    EXPECT_GT(compared, 4 * 8u);
  }
}

TEST_F(MosaicMesh, LayersPutAndCompileNothingMore) {
  AttentionArrays arrays(packed_case());
  const auto batch = BorrowedBatch::make(arrays.request, arrays.facts);
  ASSERT_TRUE(batch) << batch.error().message;
  const AttentionCall call = call_of(arrays.c);
  const SessionOptions o = options();
  const auto made = make(*batch, call, o);
  ASSERT_TRUE(made) << made.error().message;
  write_stablehlo(*made);
  const auto session = Session::open(o);
  ASSERT_TRUE(session) << session.error().message;
  const int compiles = compiled();
  const auto put = [&] { return testing::counted(plugin_, "integers_put"); };
  const int before = put();
  auto ready = session->prepare(*batch, call);
  ASSERT_TRUE(ready) << ready.error().message;
  EXPECT_EQ(compiled(), compiles + 2);
  int due = 0;
  for (const ShardKernel& kernel : made->kernels) {
    const auto arguments = arrays_of(kernel).arguments;
    due += kDevices * static_cast<int>(std::ranges::count(
                          arguments, true, &xla::ShardArray::is_own));
  }
  EXPECT_EQ(put(), before + due);
  const testing::Wanted want = testing::wanted(arrays, true);
  arrays.clear_outputs();
  const ForwardTensors t = arrays.forward(true);
  DeviceForward in;
  in.q = *ready->put(ArrayRole::q, t.q);
  in.k = *ready->put(ArrayRole::k, t.k);
  in.v = *ready->put(ArrayRole::v, t.v);
  const Gradients back = arrays.gradients();
  const DeviceArray dout = *ready->put(ArrayRole::out, back.dout);
  std::optional<DeviceSaved> last;
  for (int layer = 0; layer < 32; ++layer) {
    auto saved = ready->forward(in);
    ASSERT_TRUE(saved) << saved.error().message;
    const auto gradients = ready->backward(*saved, dout);
    ASSERT_TRUE(gradients) << gradients.error().message;
    last.emplace(std::move(*saved));
    // The next layer's queries: as large, and already on the devices.
    if (layer < 30) in.q = last->out;
    if (layer == 30) in.q = *ready->put(ArrayRole::q, t.q);
  }
  ASSERT_TRUE(ready->fetch(last->out, t.out));
  std::ranges::copy(last->lse, t.lse.begin());
  EXPECT_EQ(testing::forward_fault(want, t), std::nullopt);
  EXPECT_EQ(ready->counters().forwards, 32);
  EXPECT_EQ(compiled(), compiles + 2);
  EXPECT_EQ(put(), before + due);
}

TEST_F(MosaicMesh, BatchesOfOneContractShareAProgram) {
  SessionOptions o = options();
  o.shards.ceilings = *parse_shard_ceilings("rows=8,steps=64,kv=4:4:4");
  const auto session = Session::open(o);
  ASSERT_TRUE(session) << session.error().message;
  int64_t compiles = 0;
  const int before = compiled();
  for (uint64_t seed = 1; seed <= 100; ++seed) {
    AttentionCase c = packed_case(seed);
    std::mt19937_64 random(seed);
    int32_t document = 0;
    for (int32_t& id : *c.plan.doc_ids) {
      if (id >= 0) id = document += random() % 60 == 0 ? 1 : 0;
    }
    AttentionArrays arrays(c);
    const auto batch = BorrowedBatch::make(arrays.request, arrays.facts);
    ASSERT_TRUE(batch) << batch.error().message;
    if (seed == 1) {
      const auto made = make(*batch, call_of(arrays.c), o);
      ASSERT_TRUE(made) << made.error().message;
      write_stablehlo(*made);
    }
    auto ready = session->prepare(*batch, call_of(arrays.c));
    ASSERT_TRUE(ready) << ready.error().message;
    compiles += ready->counters().compiles;
    if (seed % 33 != 1) continue;
    const auto receipt = judge(*ready, arrays);
    ASSERT_TRUE(receipt) << receipt.error().message;
  }
  EXPECT_EQ(compiles, 2);
  EXPECT_EQ(compiled(), before + 2);
}

TEST_F(MosaicMesh, ADeviceThatFailsLeavesNothingHalfWritten) {
  AttentionArrays arrays(packed_case());
  const auto batch = BorrowedBatch::make(arrays.request, arrays.facts);
  ASSERT_TRUE(batch) << batch.error().message;
  const SessionOptions o = options();
  const auto made = make(*batch, call_of(arrays.c), o);
  ASSERT_TRUE(made) << made.error().message;
  write_stablehlo(*made);
  const auto session = Session::open(o);
  ASSERT_TRUE(session) << session.error().message;
  const std::string inner = testing::fake_plugin("fails_once");
  const auto fail_next = find<void (*)(int, int)>(inner, "fail_next");
  // Fails while integers are sent to the devices: nothing is prepared.
  fail_next(static_cast<int>(Fault::input), 5);
  const auto none = session->prepare(*batch, call_of(arrays.c));
  ASSERT_FALSE(none);
  EXPECT_TRUE(none.error().message.starts_with(
      "[pjrt] an array must reach its device, found UNAVAILABLE"))
      << none.error().message;
  auto ready = session->prepare(*batch, call_of(arrays.c));
  ASSERT_TRUE(ready) << ready.error().message;
  const testing::Wanted want = testing::wanted(arrays, true);
  for (const bool backward : {false, true}) {
    for (const auto& [fault, after, words] :
         {std::tuple(Fault::input, 6, "an array must reach its device"),
          {Fault::start, 0, "the program must run"},
          {Fault::end, 2, "the program must run"},
          {Fault::output, 1, "an output missing"},
          {Fault::read, 3, "an array must come from its device"}}) {
      SCOPED_TRACE(words);
      arrays.clear_outputs();
      std::optional<Saved> saved;
      const auto run = [&](bool back) -> std::string {
        if (!back) {
          auto ran = ready->forward(arrays.forward(true));
          if (!ran) return ran.error().message;
          saved = *ran;
          return "";
        }
        const auto ran = ready->backward(*saved, arrays.gradients());
        return ran ? "" : ran.error().message;
      };
      if (backward) {
        ASSERT_EQ(run(false), "");
      }
      const std::vector<uint8_t> before = arrays.bits();
      const int seen = testing::counted(inner, "faults_seen");
      fail_next(static_cast<int>(fault), after);
      const std::string said = run(backward);
      ASSERT_EQ(testing::counted(inner, "faults_seen"), seen + 1);
      EXPECT_NE(said.find(words), std::string::npos) << said;
      EXPECT_EQ(said.find('\n'), std::string::npos) << said;
      EXPECT_EQ(arrays.bits(), before);
      EXPECT_EQ(testing::counted(inner, "errors_alive"), 0);
      ASSERT_EQ(run(backward), "");
      const auto found =
          backward ? backward_fault(arrays.c, want, arrays.gradients())
                   : forward_fault(want, arrays.forward(true));
      EXPECT_FALSE(found) << *found;
    }
  }
}

// If no lane is named, the row of one device decides, and the receipt says so;
// verifying runs it again with the same result.
TEST_F(MosaicMesh, TheRulesChooseItAndVerifyRunsItAgain) {
  AttentionCase c = packed_case(1, 1, 1100);
  c.plan.tile = {256, 256};
  c.dtype = Dtype::bf16;
  AttentionArrays arrays(c);
  const auto batch = BorrowedBatch::make(arrays.request, arrays.facts);
  ASSERT_TRUE(batch) << batch.error().message;
  SessionOptions o = options();
  o.xla.lowering_reason.reset();
  const auto made = make(*batch, call_of(c), o);
  ASSERT_TRUE(made) << made.error().message;
  write_stablehlo(*made);
  o.lane.reset();
  o.machine =
      Machine{"A CPU", 8, {}, true, true, {{plugin_, "tpu", kDevices, "v6e"}}};
  const RunCall run = {*batch, c.shape, arrays.forward(true),
                       arrays.gradients()};
  const testing::Wanted want = testing::wanted(arrays, true);
  arrays.clear_outputs();
  const auto ran = run_attention(run, o);
  ASSERT_TRUE(ran) << ran.error().message;
  EXPECT_EQ(ran->executed, LaneId::mosaic);
  EXPECT_EQ(testing::forward_fault(want, arrays.forward(true)), std::nullopt);
  EXPECT_EQ(testing::backward_fault(c, want, arrays.gradients()), std::nullopt);
  const auto json = nlohmann::json::parse(ran->receipt);
  EXPECT_EQ(json["choice"]["rule"], "tpu kernels");
  EXPECT_TRUE(json["choice"]["reason"].get<std::string>().ends_with(
      "; the row is of one device, applied to a mesh of 4"))
      << json["choice"];
  SessionOptions again;
  again.xla.plugin = plugin_;
  again.xla.client_options = o.xla.client_options;
  const auto wrong = verify_run(ran->receipt, run, again);
  ASSERT_TRUE(wrong) << wrong.error().message;
  EXPECT_TRUE(wrong->empty()) << wrong->front();

  // Too few devices are an error before any plugin is asked.
  o.machine->plugins.front().devices = 2;
  const auto session = Session::open(o);
  ASSERT_TRUE(session) << session.error().message;
  const auto none = session->prepare(*batch, call_of(c));
  ASSERT_FALSE(none);
  EXPECT_NE(none.error().message.find("has 2 devices, and the mesh 4"),
            std::string::npos)
      << none.error().message;
}

// If the lane does not start, the next lane takes the mesh and is named.
TEST_F(MosaicMesh, XlaMayStepIn) {
  AttentionCase c = packed_case();
  c.shape.head_dim = c.shape.v_head_dim = 32;
  AttentionArrays arrays(c);
  const auto batch = BorrowedBatch::make(arrays.request, arrays.facts);
  ASSERT_TRUE(batch) << batch.error().message;
  SessionOptions o = options();
  o.fallback = {LaneId::xla};
  const auto session = Session::open(o);
  ASSERT_TRUE(session) << session.error().message;
  auto ready = session->prepare(*batch, call_of(c));
  ASSERT_TRUE(ready) << ready.error().message;
  EXPECT_EQ(ready->lane(), LaneId::xla);
  const auto receipt = judge(*ready, arrays);
  ASSERT_TRUE(receipt) << receipt.error().message;
  const auto json = nlohmann::json::parse(*receipt);
  EXPECT_EQ(json["lane"]["executed"], "xla");
  EXPECT_EQ(json["fallback"],
            "mosaic did not start: [dispatch] the mosaic lane must be able to "
            "run this, found: its head dim is a multiple of 64 up to 256, not "
            "32");
}

TEST_F(MosaicMesh, RefusesBeforeAnyWork) {
  const auto opened = [](const SessionOptions& o) {
    const auto session = Session::open(o);
    return session ? std::string() : session.error().message;
  };
  SessionOptions o = options();
  o.mesh = *parse_mesh("seq=8");
  EXPECT_EQ(opened(o),
            "[mesh] a mesh must have its 8 devices from number 0 on, found 4");
  o = options();
  o.xla.device = 2;
  EXPECT_EQ(opened(o),
            "[mesh] a mesh must have its 4 devices from number 2 on, found 4");
  o = options();
  o.xla.plugin = (*testing::real_plugin("xla_cpu_pjrt"))->path();
  EXPECT_EQ(opened(o),
            "[mosaic] a TPU must be there to run its kernel, found a cpu "
            "device");
  o.xla.plugin = XlaOptions().plugin;
  if (const std::string why = opened(o); !why.empty()) {
    EXPECT_EQ(why,
              "[mosaic] a TPU must be there to run its kernel, found none (to "
              "compile ahead needs none)");
  }

  AttentionArrays arrays(packed_case());
  const auto batch = BorrowedBatch::make(arrays.request, arrays.facts);
  ASSERT_TRUE(batch) << batch.error().message;
  const int before = compiled();
  const int put = testing::counted(plugin_, "integers_put");
  const auto prepared = [&](const Batch& of, AttentionCall call,
                            const SessionOptions& with) {
    const auto session = Session::open(with);
    if (!session) return session.error().message;
    const auto ready = session->prepare(of, call);
    return ready ? std::string() : ready.error().message;
  };
  AttentionCall call = call_of(arrays.c);
  call.dtype = Dtype::f16;
  EXPECT_EQ(prepared(*batch, call, options()),
            "[dispatch] the mosaic lane must be able to run this, found: it "
            "has no arrays of f16");
  call = call_of(arrays.c);
  call.shape.head_dim = call.shape.v_head_dim = 32;
  EXPECT_EQ(prepared(*batch, call, options()),
            "[dispatch] the mosaic lane must be able to run this, found: its "
            "head dim is a multiple of 64 up to 256, not 32");
  call = call_of(arrays.c);
  call.sink_telemetry = true;
  EXPECT_EQ(prepared(*batch, call, options()),
            "[dispatch] sink telemetry must be of one device, found a mesh of "
            "4");
  call = call_of(arrays.c);
  o = options();
  o.xla.lowering_reason.reset();
  EXPECT_EQ(
      prepared(*batch, call, o),
      "[mosaic] a tile below the granule of v6e, 256x256, must come with a "
      "lowering reason, found none for 128x128, which pays 4 times its work");
  AttentionCase three = packed_case();
  three.plan.masks = {causal(), causal() & documents(), documents()};
  three.shape = {6, 2, 64, 64, {}, 0};
  AttentionArrays by_head(three);
  const auto heads = BorrowedBatch::make(by_head.request, by_head.facts);
  ASSERT_TRUE(heads) << heads.error().message;
  call.shape = three.shape;
  EXPECT_EQ(
      prepared(*heads, call, options("head=2,seq=2")),
      "[mosaic] heads of a device must be those of whole plan heads or "
      "lie in one, found heads 3 to 5 in plan heads 1 to 2 for "
      "head=2,seq=2 (repeat the masks until they are 6, for fewer heads each)");
  // A batch for which, by the budget, no device has room.
  Request request;
  request.masks = {*parse_mask("causal")};
  request.q_len = request.kv_len = 8192;
  request.tile = {256, 256};
  const auto large = OwnedBatch::make(request, OwnedFacts());
  ASSERT_TRUE(large) << large.error().message;
  call.shape = {16384, 16384, 128, 128, {}, 0};
  call.dtype = Dtype::bf16;
  o = options();
  o.xla.lowering_reason.reset();
  const std::string why = prepared(*large, call, o);
  EXPECT_TRUE(
      why.starts_with("[fit] the backward pass must fit the 31.24 GiB "
                      "of a v6e device, found "))
      << why;
  EXPECT_EQ(why.find('\n'), std::string::npos) << why;
  EXPECT_EQ(compiled(), before);
  EXPECT_EQ(testing::counted(plugin_, "integers_put"), put);
}

}  // namespace
}  // namespace tessera::mosaic
