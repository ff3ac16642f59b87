// lanes/cpu/plugin_calls_test.cc: which plugins call our kernels, and the
// errors for plugins that do not.
#include "lanes/cpu/plugin_calls.h"

#include <gtest/gtest.h>

#include "lanes/cpu/ffi_handlers.h"
#include "tests/plugins.h"

namespace tessera::cpu {
namespace {

class PluginCalls : public ::testing::Test {
 protected:
  void SetUp() override {
    TESSERA_NEEDS_PLUGINS();
    auto there = ffi_handlers();
    if (!there) GTEST_SKIP() << there.error().message;
    testing::look_in_venv();
  }

  // Why the plugin does not call our kernels; "" if it does.
  static std::string why_not(const std::string& plugin) {
    auto place = pjrt::open_place(plugin, 0);
    EXPECT_TRUE(place) << place.error().message;
    if (!place) return "no place";
    const auto ok = add_handlers(*place);
    const auto again = add_handlers(*place);
    EXPECT_EQ(ok.ok(), again.ok());
    if (ok) return "";
    EXPECT_EQ(ok.error().kind, ErrorKind::unavailable);
    EXPECT_EQ(ok.error().message.find('\n'), std::string::npos);
    EXPECT_EQ(ok.error().message, again.error().message);
    return ok.error().message;
  }
};

TEST_F(PluginCalls, OnesThatAnswerAreTaken) {
  auto plugin = testing::real_plugin(kCallingPlugin);
  if (testing::is_absent(plugin)) GTEST_SKIP() << plugin.error().message;
  EXPECT_EQ(why_not(kCallingPlugin), "");
  // A second client: the plugin has the handlers already.
  auto place =
      pjrt::open_place(kCallingPlugin, 1, {{"cpu_device_count", int64_t{2}}});
  ASSERT_TRUE(place) << place.error().message;
  const auto ok = add_handlers(*place);
  EXPECT_TRUE(ok) << ok.error().message;
}

// This plugin accepts the handlers, but its programs do not find them.
TEST_F(PluginCalls, OneThatDoesNotAnswerIsNamed) {
  auto plugin = testing::real_plugin("xla_cpu_pjrt");
  if (testing::is_absent(plugin)) GTEST_SKIP() << plugin.error().message;
  const std::string why = why_not("xla_cpu_pjrt");
  EXPECT_EQ(why.find("[cpu] a plugin must call our kernels from its programs, "
                     "as lammps_jax_pjrt_cpu does, found "),
            0U)
      << why;
  EXPECT_NE(why.find("xla_cpu_pjrt.so'"), std::string::npos) << why;
  EXPECT_NE(why.find(kProbeTarget), std::string::npos) << why;
}

TEST_F(PluginCalls, OneWithoutTheExtensionIsNamed) {
  auto plugin = testing::real_plugin(kCallingPlugin);
  if (testing::is_absent(plugin)) GTEST_SKIP() << plugin.error().message;
  setenv("TESSERA_TEST_WRAPPED_PLUGIN", (*plugin)->path().c_str(), 1);
  const std::string why = why_not(testing::fake_plugin("no_extensions"));
  EXPECT_NE(why.find("extension for foreign functions"), std::string::npos)
      << why;
  EXPECT_NE(why.find("no_extensions.so'"), std::string::npos) << why;
}

}  // namespace
}  // namespace tessera::cpu
