// pjrt/compile_test.cc: compiles with real plugins, if `make tpu` has installed
// them.
#include "pjrt/compile.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "base/child.h"
#include "base/files.h"
#include "tessera/machine.h"
#include "tests/plugins.h"

namespace tessera::pjrt {
namespace {

using tessera::testing::is_absent;
using tessera::testing::real_plugin;

constexpr const char* kProgram =
    "module @sum {\n"
    "  func.func @main(%a: tensor<8x128xf32>, %b: tensor<8x128xf32>)\n"
    "      -> tensor<8x128xf32> {\n"
    "    %0 = stablehlo.add %a, %b : tensor<8x128xf32>\n"
    "    return %0 : tensor<8x128xf32>\n"
    "  }\n"
    "}\n";

// The file to which a child of these tests writes its bytes.
constexpr const char* kWriteTo = "TESSERA_TEST_WRITE_TO";

class Libtpu : public ::testing::Test {
 protected:
  void SetUp() override {
    auto plugin = real_plugin("libtpu");
    if (is_absent(plugin)) GTEST_SKIP() << plugin.error().message;
    ASSERT_TRUE(plugin.ok()) << plugin.error().message;
    plugin_ = *plugin;
  }
  Result<Executable> compile_for(const std::string& target,
                                 std::string_view program,
                                 const CompileOptions& options = {}) {
    auto topology = make_topology(*plugin_, target);
    if (!topology) return topology.error();
    return compile(*topology, program, options);
  }

  const Plugin* plugin_ = nullptr;
};

TEST_F(Libtpu, KnowsEveryTargetThatWeName) {
  for (const std::string_view name : known_targets()) {
    const auto topology = make_topology(*plugin_, std::string(name));
    ASSERT_TRUE(topology.ok()) << topology.error().message;
    EXPECT_FALSE(topology->devices().empty()) << name;
    const auto chip = chip_of_device(topology->devices()[0].kind);
    ASSERT_TRUE(chip.has_value()) << topology->devices()[0].kind;
    EXPECT_EQ(chip->name, name.substr(0, name.find(':')));
    EXPECT_EQ(topology->platform(), "tpu");
  }
  EXPECT_EQ(make_topology(*plugin_, "v6e:16x16")->devices().size(), 256u);
  EXPECT_EQ(make_topology(*plugin_, "v6e:1x1")->devices()[0].kind,
            "TPU v6 lite");
}

TEST_F(Libtpu, RefusesATargetItDoesNotKnow) {
  for (const char* name :
       {"v9e:1x1", "nonsense", "", "v6e:3x7x9", "v6e:x", "v6e:garbage"}) {
    const auto topology = make_topology(*plugin_, name);
    ASSERT_FALSE(topology.ok()) << name;
    EXPECT_EQ(topology.error().kind, ErrorKind::invalid) << name;
    EXPECT_TRUE(topology.error().message.starts_with(
        "[pjrt] a target must be one that the plugin knows (libtpu: v4:2x2x1"))
        << topology.error().message;
  }
  EXPECT_FALSE(make_topology(*plugin_, std::string("v6e:1x1\0x", 9)).ok());
  // These names would end the process in libtpu.
  for (const char* name : {"v6e:0x0", "v6e:1x0", "v6e=00x1", "v6e:2x2x0",
                           "v4:0x2x2_twisted", "v4:2x2x0_untwisted"}) {
    const auto topology = make_topology(*plugin_, name);
    ASSERT_FALSE(topology.ok()) << name;
    EXPECT_TRUE(topology.error().message.starts_with(
        "[pjrt] sides of a target must be from 1 on, "))
        << topology.error().message;
  }
}

TEST_F(Libtpu, CompilesAndTellsWhatItMade) {
  const auto executable = compile_for("v6e:1x1", kProgram);
  ASSERT_TRUE(executable.ok()) << executable.error().message;
  const auto memory = executable->memory();
  ASSERT_TRUE(memory.ok()) << memory.error().message;
  EXPECT_GT(memory->code, 0);
  EXPECT_EQ(memory->argument, 2 * 8 * 128 * 4);
  EXPECT_EQ(memory->output, 8 * 128 * 4);
  EXPECT_EQ(memory->alias, 0);
  EXPECT_GT(memory->peak.value_or(0), 0);
  EXPECT_EQ(*executable->code_bytes(), memory->code);
  EXPECT_EQ(*executable->name(), "sum");
  EXPECT_EQ(*executable->outputs(), 1);
  EXPECT_FALSE(executable->fingerprint()->empty());
  const auto cost = executable->cost();
  ASSERT_TRUE(cost.ok()) << cost.error().message;
  EXPECT_TRUE(std::any_of(cost->begin(), cost->end(), [](const auto& c) {
    return c.name == "flops" && std::get<double>(c.value) >= 8 * 128;
  }));
}

TEST_F(Libtpu, SerializesWhatItMade) {
  const auto a = compile_for("v6e:1x1", kProgram);
  const auto b = compile_for("v6e:1x1", kProgram);
  ASSERT_TRUE(a.ok() && b.ok());
  const auto bytes = a->serialize();
  ASSERT_TRUE(bytes.ok()) << bytes.error().message;
  EXPECT_GT(bytes->size(), 1000u);
  EXPECT_TRUE(*bytes == *a->serialize());
  EXPECT_EQ(*a->fingerprint(), *b->fingerprint());
  const auto other = compile_for("v5e:2x2", kProgram);
  ASSERT_TRUE(other.ok());
  EXPECT_NE(*a->fingerprint(), *other->fingerprint());
  if (const char* path = std::getenv(kWriteTo)) {
    ASSERT_TRUE(write_file(path, *bytes).ok());
  }
}

// libtpu numbers the programs of a process, so serialized bytes are equal
// between processes, but not within one.
TEST_F(Libtpu, SerializesTheSameBytesInEachProcess) {
  const std::string folder =
      ::testing::TempDir() + "tessera_bytes_" + std::to_string(getpid());
  std::filesystem::create_directories(folder);
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  std::string bytes[2];
  for (std::string& out : bytes) {
    const std::string path = folder + "/bytes";
    const auto run =
        run_child({self, "--gtest_filter=Libtpu.SerializesWhatItMade"},
                  {{kWriteTo, path}}, 300);
    ASSERT_TRUE(run.ok());
    ASSERT_EQ(run->exit_code, 0) << run->out;
    auto read = read_file(path, 1 << 26);
    ASSERT_TRUE(read.ok());
    out = std::move(*read);
    std::filesystem::remove(path);
  }
  EXPECT_GT(bytes[0].size(), 1000u);
  EXPECT_TRUE(bytes[0] == bytes[1]);
  std::filesystem::remove_all(folder);
}

TEST_F(Libtpu, OptionsReachTheCompiler) {
  const auto executable = compile_for("v6e:2x2", kProgram, {1, 4, true, true});
  ASSERT_TRUE(executable.ok()) << executable.error().message;
  // More devices than the target has.
  const auto refused = compile_for("v6e:2x2", kProgram, {1, 64, true, true});
  ASSERT_FALSE(refused.ok());
  EXPECT_TRUE(refused.error().message.starts_with(
      "[pjrt] the program must compile, found "))
      << refused.error().message;
}

TEST_F(Libtpu, BadProgramsGiveItsFirstLines) {
  const auto broken = compile_for("v6e:1x1", "module { func.func @main( { }");
  ASSERT_FALSE(broken.ok());
  EXPECT_EQ(broken.error().message,
            "[pjrt] the program must compile, found UNKNOWN: '-:1:26: error: "
            "expected non-function type' for v6e:1x1");
  for (const std::string& program :
       {std::string(), std::string("\0\0\0\0", 4), std::string("ML\xefR\x01"),
        std::string(100000, '{'), std::string("module {}")}) {
    EXPECT_FALSE(compile_for("v6e:1x1", program).ok()) << program.substr(0, 9);
  }
}

TEST_F(Libtpu, CompilesInSeveralThreads) {
  std::vector<std::string> prints(4);
  std::vector<std::thread> threads;
  for (std::string& out : prints) {
    threads.emplace_back([&] {
      const auto executable = compile_for("v6e:1x1", kProgram);
      if (executable) out = *executable->fingerprint();
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_FALSE(prints[0].empty());
  for (const std::string& p : prints) EXPECT_EQ(p, prints[0]);
}

// Programs around one Mosaic kernel (tests/golden/make_mosaic.py).
std::string golden(const std::string& name) {
  auto text = read_file("tests/golden/mosaic/" + name + ".mlir", 1 << 20);
  return text ? std::move(*text) : std::string();
}

TEST_F(Libtpu, CompilesAMosaicKernelFromText) {
  const auto executable = compile_for("v6e:1x1", golden("double"));
  ASSERT_TRUE(executable.ok()) << executable.error().message;
  EXPECT_EQ(executable->memory()->argument, 8 * 128 * 4);
  EXPECT_EQ(*executable->name(), "double");
}

TEST_F(Libtpu, AKernelsTypeErrorIsOneLineOfOurs) {
  const auto executable = compile_for("v6e:1x1", golden("wrong_type"));
  ASSERT_FALSE(executable.ok());
  EXPECT_EQ(executable.error().kind, ErrorKind::invalid);
  EXPECT_NE(executable.error().message.find(
                "found INVALID_ARGUMENT: 'Failed to parse the Mosaic module: "),
            std::string::npos)
      << executable.error().message;
  EXPECT_NE(executable.error().message.find("use of value '%d' expects"),
            std::string::npos)
      << executable.error().message;
}

TEST_F(Libtpu, TooMuchScalarMemoryIsALimit) {
  const auto executable = compile_for("v6e:1x1", golden("scalar_memory"));
  ASSERT_FALSE(executable.ok());
  EXPECT_EQ(executable.error().kind, ErrorKind::limit);
  EXPECT_NE(executable.error().message.find("RESOURCE_EXHAUSTED"),
            std::string::npos);
  EXPECT_NE(executable.error().message.find("memory space smem"),
            std::string::npos)
      << executable.error().message;
  EXPECT_EQ(executable.error().message.find('\n'), std::string::npos);
}

TEST(XlaCpu, LoadsBesideLibtpu) {
  const auto plugin = real_plugin("xla_cpu_pjrt");
  if (is_absent(plugin)) GTEST_SKIP() << plugin.error().message;
  ASSERT_TRUE(plugin.ok()) << plugin.error().message;
  EXPECT_EQ((*plugin)->minor_version(), 81);
  const auto again = real_plugin("xla_cpu_pjrt");
  EXPECT_EQ(*again, *plugin);
  const auto libtpu = real_plugin("libtpu");
  if (libtpu) {
    EXPECT_NE(*libtpu, *plugin);
  }
  // This plugin compiles for a client only.
  const auto topology = make_topology(**plugin, "cpu");
  ASSERT_FALSE(topology.ok());
  EXPECT_EQ(topology.error().kind, ErrorKind::unavailable);
}

}  // namespace
}  // namespace tessera::pjrt
