// lanes/xla/shard_fails_test.cc: a device of a mesh fails in the middle of a
// run. The error is one line, no output of the caller changes by a bit, and the
// session can run again.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "tessera/session.h"
#include "tests/attention_case.h"
#include "tests/attention_choices.h"
#include "tests/plugins.h"

namespace tessera::xla {
namespace {

constexpr int kDevices = 4;

// In the order of tests/plugins/fails_once.cc.
enum class Fault : int {
  none,
  input,
  start,
  end,
  late,
  output,
  read,
  read_late
};

class ShardFails : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    auto real = testing::real_plugin("xla_cpu_pjrt");
    if (!real) return;
    setenv("TESSERA_TEST_WRAPPED_PLUGIN", (*real)->path().c_str(), 1);
  }

  void SetUp() override {
    TESSERA_NEEDS_PLUGINS();
    auto real = testing::real_plugin("xla_cpu_pjrt");
    if (testing::is_absent(real)) GTEST_SKIP() << real.error().message;
    SessionOptions options;
    options.lane = LaneId::xla;
    options.xla.plugin = path_;
    options.mesh.axes = {{"seq", kDevices}};
    options.shards.balance = Balance::tasks;
    auto session = Session::open(options);
    ASSERT_TRUE(session) << session.error().message;
    session_.emplace(std::move(*session));
    auto batch = BorrowedBatch::make(arrays_.request, arrays_.facts);
    ASSERT_TRUE(batch) << batch.error().message;
    const testing::AttentionCase& c = arrays_.c;
    auto prepared =
        session_->prepare(*batch, {c.shape, c.dtype, c.sinks, true, c.dlse});
    ASSERT_TRUE(prepared) << prepared.error().message;
    batch_.emplace(std::move(*batch));
    prepared_.emplace(std::move(*prepared));
    fail_next_ = find<void (*)(int, int)>("fail_next");
    ASSERT_NE(fail_next_, nullptr);
  }

  template <class F>
  F find(const char* name) const {
    void* library = dlopen(path_.c_str(), RTLD_NOW | RTLD_NOLOAD);
    return library ? reinterpret_cast<F>(dlsym(library, name)) : nullptr;
  }

  // The error, or "".
  std::string run(bool backward) {
    if (!backward) {
      auto saved = prepared_->forward(arrays_.forward(true));
      if (!saved) return saved.error().message;
      saved_ = *saved;
      return "";
    }
    auto ran = prepared_->backward(*saved_, arrays_.gradients());
    return ran ? "" : ran.error().message;
  }

  int ask(const char* name) const { return testing::counted(path_, name); }

  const std::string path_ = testing::fake_plugin("fails_once");
  testing::AttentionArrays arrays_{
      testing::plain_attention("causal", 256, 256, 16)};
  std::optional<Session> session_;
  std::optional<BorrowedBatch> batch_;
  std::optional<Prepared> prepared_;
  std::optional<Saved> saved_;
  void (*fail_next_)(int, int) = nullptr;
};

struct Case {
  Fault fault;
  int after;  // calls, or devices, that do not fail before
  std::string message;
};

TEST_F(ShardFails, OneLineNoOutputTouchedAndItRunsAgain) {
  const std::string lost = "UNAVAILABLE: 'the device is lost' for ";
  const std::string start = "[pjrt] the program must run, found ";
  const testing::Wanted want = testing::wanted(arrays_, true);
  for (const bool backward : {false, true}) {
    const std::string reach = "[pjrt] an array must reach its device, found ";
    const std::string come =
        "[pjrt] an array must come from its device, found ";
    for (const Case& c : std::vector<Case>{
             {Fault::input, 0, reach + lost},
             {Fault::input, 6, reach + lost},
             {Fault::start, 0, start + lost + "cpu 0"},
             {Fault::end, 0, start + lost + "cpu 0"},
             {Fault::end, 2, start + lost + "cpu 2"},
             {Fault::end, 3, start + lost + "cpu 3"},
             {Fault::output, 1, start + "an output missing for cpu 1"},
             {Fault::read, 0, come + lost},
             {Fault::read, 7, come + lost},
             {Fault::read_late, 5, come + lost}}) {
      // Backward needs the results of a forward pass without a fault.
      arrays_.clear_outputs();
      if (backward) {
        ASSERT_EQ(run(false), "");
      }
      const std::vector<uint8_t> before = arrays_.bits();
      const int seen = ask("faults_seen");
      fail_next_(static_cast<int>(c.fault), c.after);
      const std::string said = run(backward);
      ASSERT_EQ(ask("faults_seen"), seen + 1) << c.message;
      EXPECT_TRUE(said.starts_with(c.message)) << said;
      EXPECT_EQ(said.find('\n'), std::string::npos) << said;
      EXPECT_EQ(arrays_.bits(), before) << c.message;
      EXPECT_EQ(ask("errors_alive"), 0) << c.message;
      // The same devices run again.
      ASSERT_EQ(run(backward), "") << c.message;
      const auto fault =
          backward ? backward_fault(arrays_.c, want, arrays_.gradients())
                   : forward_fault(want, arrays_.forward(true));
      EXPECT_FALSE(fault) << *fault;
    }
  }
}

// Resident arrays: put, forward and fetch fail in the same way.
TEST_F(ShardFails, ArraysThatStayAreWholeOrNotThere) {
  const testing::Wanted want = testing::wanted(arrays_, true);
  arrays_.clear_outputs();
  const ForwardTensors t = arrays_.forward(false);
  const std::vector<uint8_t> before = arrays_.bits();
  const auto next = [&](Fault fault, int after) {
    fail_next_(static_cast<int>(fault), after);
  };
  next(Fault::input, 2);
  const auto q = prepared_->put(ArrayRole::q, t.q);
  ASSERT_FALSE(q);
  EXPECT_TRUE(
      q.error().message.starts_with("[pjrt] an array must reach its "
                                    "device, found UNAVAILABLE"))
      << q.error().message;
  DeviceForward in;
  in.q = *prepared_->put(ArrayRole::q, t.q);
  in.k = *prepared_->put(ArrayRole::k, t.k);
  in.v = *prepared_->put(ArrayRole::v, t.v);
  next(Fault::end, 3);
  const auto lost = prepared_->forward(in);
  ASSERT_FALSE(lost);
  EXPECT_EQ(lost.error().message,
            "[pjrt] the program must run, found UNAVAILABLE: 'the device is "
            "lost' for cpu 3");
  const auto saved = prepared_->forward(in);
  ASSERT_TRUE(saved) << saved.error().message;
  // The third of four parts does not arrive.
  next(Fault::read_late, 2);
  const auto fetched = prepared_->fetch(saved->out, t.out);
  ASSERT_FALSE(fetched);
  EXPECT_TRUE(fetched.error().message.starts_with(
      "[pjrt] an array must come from its device, found UNAVAILABLE"))
      << fetched.error().message;
  EXPECT_EQ(arrays_.bits(), before);
  EXPECT_EQ(ask("errors_alive"), 0);
  const auto again = prepared_->fetch(saved->out, t.out);
  ASSERT_TRUE(again) << again.error().message;
  const auto fault = forward_fault(want, t);
  EXPECT_FALSE(fault) << *fault;
}

// Results wait for the last device.
TEST_F(ShardFails, ALateDeviceIsWaitedFor) {
  const testing::Wanted want = testing::wanted(arrays_, true);
  arrays_.clear_outputs();
  fail_next_(static_cast<int>(Fault::late), 1);
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_EQ(run(false), "");
  EXPECT_GE(std::chrono::steady_clock::now() - begin,
            std::chrono::milliseconds(300));
  const auto fault = forward_fault(want, arrays_.forward(true));
  EXPECT_FALSE(fault) << *fault;
}

}  // namespace
}  // namespace tessera::xla
