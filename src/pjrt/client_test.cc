// pjrt/client_test.cc: clients of real plugins, and of a plugin that fails.
#include "pjrt/client.h"

#include <thread>

#include "tests/cpu_plugin.h"

namespace tessera::pjrt {
namespace {

using tessera::testing::counted;
using tessera::testing::CpuPlugin;
using tessera::testing::fake_plugin;
using tessera::testing::is_absent;
using tessera::testing::real_plugin;

class PjrtClient : public CpuPlugin {};
TESSERA_FOR_CPU_PLUGINS(PjrtClient);

TEST_P(PjrtClient, TellsWhatItIs) {
  EXPECT_EQ(client_->platform(), "cpu");
  EXPECT_FALSE(client_->platform_version().empty());
  EXPECT_EQ(&client_->plugin(), plugin_);
  ASSERT_FALSE(client_->devices().empty());
  for (size_t i = 0; i < client_->devices().size(); ++i) {
    EXPECT_EQ(describe(device(i)), "cpu " + std::to_string(i));
  }
}

TEST_P(PjrtClient, OptionsReachThePlugin) {
  const auto three = open_client(*plugin_, {{"cpu_device_count", int64_t{3}}});
  ASSERT_TRUE(three.ok()) << three.error().message;
  EXPECT_EQ((*three)->devices().size(), 3u);
  const auto five = open_client(*plugin_, {{"cpu_device_count", int64_t{5}}});
  ASSERT_TRUE(five.ok()) << five.error().message;
  EXPECT_EQ((*five)->devices().size(), 5u);
  EXPECT_NE(*three, *five);
  const auto again = open_client(*plugin_, {{"cpu_device_count", int64_t{3}}});
  EXPECT_EQ(*again, *three);
}

// Each of these options would end the process in a plugin.
TEST_P(PjrtClient, OptionsThatItWouldCrashOnAreRefused) {
  const auto refusal = [&](OptionValue value) {
    const auto client = open_client(*plugin_, {{"cpu_device_count", value}});
    return client ? "it started" : client.error().message;
  };
  const std::string rule =
      "[pjrt] cpu_device_count must be an integer in 1..1024, found ";
  EXPECT_EQ(refusal(int64_t{0}), rule + "0");
  EXPECT_EQ(refusal(int64_t{-1}), rule + "-1");
  EXPECT_EQ(refusal(int64_t{1} << 40), rule + "1099511627776");
  EXPECT_EQ(refusal(std::string("4")), rule + "another type");
  EXPECT_EQ(refusal(true), rule + "another type");
  EXPECT_EQ(refusal(4.0), rule + "another type");
}

TEST_P(PjrtClient, ADeviceIsFoundByItsNumber) {
  const auto count = static_cast<int64_t>(client_->devices().size());
  EXPECT_EQ(*find_device(*client_, count - 1), &client_->devices().back());
  for (const int64_t number : {int64_t{-1}, count, INT64_MAX, INT64_MIN}) {
    const auto none = find_device(*client_, number);
    ASSERT_FALSE(none.ok());
    EXPECT_TRUE(none.error().message.starts_with(
        "[pjrt] a device's number must be less than the " +
        std::to_string(count) + " that the plugin has, found " +
        std::to_string(number) + " for '"))
        << none.error().message;
  }
}

TEST_P(PjrtClient, ThreadsGetTheSameOne) {
  std::vector<const Client*> found(8);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < found.size(); ++i) {
    threads.emplace_back([&, i] {
      const auto client =
          open_client(*plugin_, {{"cpu_device_count", int64_t{2}}});
      if (client) found[i] = *client;
    });
  }
  for (std::thread& t : threads) t.join();
  ASSERT_NE(found[0], nullptr);
  for (const Client* client : found) EXPECT_EQ(client, found[0]);
}

TEST(PjrtClientOfLibtpu, NeedsATpu) {
  const auto plugin = real_plugin("libtpu");
  if (is_absent(plugin)) GTEST_SKIP() << plugin.error().message;
  ASSERT_TRUE(plugin.ok()) << plugin.error().message;
  const auto client = open_client(**plugin);
  if (client) GTEST_SKIP() << "this machine has one";
  EXPECT_EQ(client.error().kind, ErrorKind::unavailable);
  EXPECT_TRUE(
      client.error().message.starts_with("[pjrt] a client must start, found "))
      << client.error().message;
}

class FaultyClient : public ::testing::Test {
 protected:
  void SetUp() override {
    TESSERA_NEEDS_PLUGINS();
    const auto plugin = load_plugin(path_);
    ASSERT_TRUE(plugin.ok()) << plugin.error().message;
    plugin_ = *plugin;
  }
  Result<const Client*> start(const std::string& how) const {
    return open_client(*plugin_, {{"start", how}});
  }

  const std::string path_ = fake_plugin("faulty");
  const Plugin* plugin_ = nullptr;
};

TEST_F(FaultyClient, OneThatFailsIsTriedAgain) {
  const int before = counted(path_, "fake_alive");
  std::string last;
  for (int i = 0; i < 3; ++i) {
    const auto client = start("fails");
    ASSERT_FALSE(client.ok());
    EXPECT_EQ(client.error().kind, ErrorKind::unavailable);
    EXPECT_TRUE(client.error().message.starts_with(
        "[pjrt] a client must start, found UNAVAILABLE: 'no chip, asked "))
        << client.error().message;
    EXPECT_NE(client.error().message, last);
    last = client.error().message;
  }
  EXPECT_EQ(counted(path_, "fake_alive"), before);
}

TEST_F(FaultyClient, OneThatIsNothingOrHasNoDeviceIsAnError) {
  const int before = counted(path_, "fake_alive");
  const auto nothing = start("nothing");
  ASSERT_FALSE(nothing.ok());
  EXPECT_TRUE(nothing.error().message.starts_with(
      "[pjrt] a client must start, found nothing for "))
      << nothing.error().message;
  const auto empty = start("no devices");
  ASSERT_FALSE(empty.ok());
  EXPECT_EQ(empty.error().kind, ErrorKind::unavailable);
  EXPECT_TRUE(empty.error().message.starts_with(
      "[pjrt] a client must have a device, found none for "))
      << empty.error().message;
  EXPECT_EQ(counted(path_, "fake_alive"), before);
}

TEST_F(FaultyClient, IdsAreTheDevicesOwn) {
  const auto client = start("well");
  ASSERT_TRUE(client.ok()) << client.error().message;
  EXPECT_EQ((*client)->platform(), "fake");
  EXPECT_EQ((*client)->platform_version(), "fake 1.2");
  ASSERT_EQ((*client)->devices().size(), 2u);
  EXPECT_EQ((*client)->devices()[1].id, 9);
  // This device does not tell its kind.
  EXPECT_EQ(describe((*client)->devices()[1]), "device 9");
}

TEST_F(FaultyClient, OptionsAreOneSet) {
  const auto a = open_client(*plugin_, {{"x", int64_t{1}}, {"y", 2.5}});
  const auto b = open_client(*plugin_, {{"y", 2.5}, {"x", int64_t{1}}});
  const auto c = open_client(*plugin_, {{"y", 2.5}, {"x", true}});
  ASSERT_TRUE(a.ok() && b.ok() && c.ok());
  EXPECT_EQ(*a, *b);
  EXPECT_NE(*a, *c);
  const auto twice =
      open_client(*plugin_, {{"x", int64_t{1}}, {"x", int64_t{2}}});
  ASSERT_FALSE(twice.ok());
  EXPECT_EQ(twice.error().message,
            "[pjrt] an option must be given once, found two for 'x'");
  const auto real = open_client(*plugin_, {{"x", 1e300}});
  ASSERT_FALSE(real.ok());
  EXPECT_TRUE(real.error().message.starts_with(
      "[pjrt] an option must be a finite float, found 1e+300 for 'x'"))
      << real.error().message;
}

TEST_F(FaultyClient, APluginWithoutClientsSaysSo) {
  const auto plugin = load_plugin(fake_plugin("before_clients"));
  ASSERT_TRUE(plugin.ok()) << plugin.error().message;
  const auto client = open_client(**plugin);
  ASSERT_FALSE(client.ok());
  EXPECT_EQ(client.error().kind, ErrorKind::unavailable);
  EXPECT_TRUE(client.error().message.starts_with(
      "[pjrt] a client must start, found a plugin without PJRT_Client_Create "
      "for "))
      << client.error().message;
}

}  // namespace
}  // namespace tessera::pjrt
