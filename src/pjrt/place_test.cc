// pjrt/place_test.cc: opens the devices of a mesh after the plugin's number of
// threads is fixed.
#include "pjrt/place.h"

#include <fmt/format.h>

#include <cstdlib>

#include "base/threads.h"
#include "tests/cpu_plugin.h"

namespace tessera::pjrt {
namespace {

// A plugin keeps its number of threads, so this suite needs a process of its
// own.
class MeshAfterDevice : public testing::CpuPlugin {
 protected:
  void SetUp() override {
    auto plugin = testing::real_plugin(GetParam());
    if (testing::is_absent(plugin)) GTEST_SKIP() << plugin.error().message;
    ASSERT_TRUE(plugin) << plugin.error().message;
    unsetenv("NPROC");
    auto client = open_client(**plugin);
    ASSERT_TRUE(client) << client.error().message;
    client_ = *client;
  }
};

TEST_P(MeshAfterDevice, IsRefusedWhereItWouldNeverEnd) {
  const int64_t cores = machine_threads();
  if (client_->threads() != cores) {
    GTEST_SKIP() << "it takes a process of its own, as ctest gives it";
  }
  const int64_t devices = cores + 1;
  auto mesh = open_devices(GetParam(), 0, devices);
  ASSERT_FALSE(mesh);
  EXPECT_EQ(mesh.error().kind, ErrorKind::unavailable);
  EXPECT_EQ(
      mesh.error().message,
      fmt::format("[mesh] a mesh of {} CPU devices must have more threads "
                  "than devices, found {}, for the plugin was opened for "
                  "fewer devices before; open the mesh first, or start "
                  "the process with NPROC={}",
                  devices, cores, devices + cores));
  // With fewer devices than threads, each device gets a thread.
  if (cores > 2) {
    EXPECT_TRUE(open_devices(GetParam(), 0, cores - 1));
  }
  EXPECT_TRUE(open_devices(GetParam(), 0, 1));
}

TESSERA_FOR_CPU_PLUGINS(MeshAfterDevice);

}  // namespace
}  // namespace tessera::pjrt
