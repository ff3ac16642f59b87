// tests/cpu_plugin.h: a fixture for tests of each real plugin for the CPU.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "pjrt/execute.h"
#include "tests/plugins.h"

namespace tessera::testing {

// The parameter is a plugin's name. If the plugin is absent the test is
// skipped, with the reason.
class CpuPlugin : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    auto plugin = real_plugin(GetParam());
    if (is_absent(plugin)) GTEST_SKIP() << plugin.error().message;
    ASSERT_TRUE(plugin.ok()) << plugin.error().message;
    plugin_ = *plugin;
    auto client = pjrt::open_client(*plugin_);
    ASSERT_TRUE(client.ok()) << client.error().message;
    client_ = *client;
  }

  const pjrt::Device& device(size_t number = 0) const {
    return client_->devices().at(number);
  }

  // The numbers of an F32 buffer; empty if it cannot be read.
  static std::vector<float> floats(const pjrt::Buffer& buffer) {
    const auto bytes = pjrt::byte_size(buffer.type());
    if (!bytes || buffer.type().dtype != Dtype::f32) return {};
    std::vector<float> out(static_cast<size_t>(*bytes) / sizeof(float));
    const auto ok = pjrt::to_host(buffer, out.data(), *bytes);
    EXPECT_TRUE(ok.ok()) << ok.error().message;
    return out;
  }

  const pjrt::Plugin* plugin_ = nullptr;
  const pjrt::Client* client_ = nullptr;
};

inline std::string plugin_name(
    const ::testing::TestParamInfo<const char*>& info) {
  return info.param;
}

#define TESSERA_FOR_CPU_PLUGINS(fixture)                                      \
  INSTANTIATE_TEST_SUITE_P(                                                   \
      Cpu, fixture, ::testing::Values("xla_cpu_pjrt", "lammps_jax_pjrt_cpu"), \
      ::tessera::testing::plugin_name)

}  // namespace tessera::testing
