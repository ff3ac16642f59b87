// cli/train/killed_test.cc: a run that is killed repeatedly, each time at
// another moment, and resumes from its checkpoint.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "base/child.h"
#include "base/files.h"
#include "lanes/cpu/ffi_handlers.h"
#include "tessera/train.h"
#include "tests/packed_program.h"
#include "tests/plugins.h"

namespace tessera::cli {
namespace {

using testing::Arguments;

struct Devices {
  const char* name;
  const char* spec = "xla";
  std::string mesh = {};  // "": one device
};

class TrainKilled : public testing::PackedProgram,
                    public ::testing::WithParamInterface<Devices> {
 protected:
  void SetUp() override {
    TESSERA_NEEDS_PLUGINS();
    const auto plugin =
        testing::real_plugin(default_plugin(*find_layer_spec(GetParam().spec)));
    if (testing::is_absent(plugin)) GTEST_SKIP() << plugin.error().message;
    if (GetParam().spec == std::string_view("cpu")) {
      const auto there = cpu::ffi_handlers();
      if (!there) GTEST_SKIP() << there.error().message;
    }
    pack_documents(
        12, [](int) { return 128; }, 128);
    std::ofstream(file("model.json"))
        << R"({"vocab": 61, "width": 64, "head_dim": 16, "mlp_width": 96})";
  }

  // Every step leaves a checkpoint of 2 MB.
  Arguments asked(const std::string& checkpoint) {
    Arguments out = {"train",
                     "--data",
                     file("rows"),
                     "--model",
                     file("model.json"),
                     "--spec",
                     GetParam().spec,
                     "--tile",
                     "64x64",
                     "--cache",
                     file("cache"),
                     "--steps",
                     "60",
                     "--rate",
                     "1e-2",
                     "--every",
                     "1",
                     "--checkpoint",
                     checkpoint};
    const std::string& mesh = GetParam().mesh;
    if (mesh.empty()) return out;
    out.insert(out.end(), {"--rows", "2", "--mesh", mesh});
    if (mesh == "seq=2") out.insert(out.end(), {"--exchange", "rounds"});
    return out;
  }
};

TEST_P(TrainKilled, LosesNothing) {
  const std::string whole = file("whole.safetensors"),
                    part = file("part.safetensors");
  program(asked(whole));
  ASSERT_EQ(code_, kOk) << err_;

  int killed_at_work = 0;  // killed after it wrote a checkpoint
  double seconds = 0.5;
  for (int run = 0;; ++run) {
    ASSERT_LT(run, 200);
    Arguments command = asked(part);
    command.insert(command.begin(), TESSERA_PROGRAM);
    if (std::filesystem::exists(part)) {
      command.insert(command.end(), {"--resume", part});
    }
    const auto before = read_file(part, 1 << 26);
    auto ran = run_child(command, {}, seconds);
    ASSERT_TRUE(ran.ok()) << ran.error().message;
    if (!ran->timed_out) {
      ASSERT_EQ(ran->exit_code, 0) << ran->err;
      if (killed_at_work > 0) break;
      // The run finished before it was killed: start again.
      std::filesystem::remove(part);
      seconds *= 0.7;
      continue;
    }
    EXPECT_LE(unfinished_files(), 1);
    const auto after = read_file(part, 1 << 26);
    const bool moved = after && (!before || *before != *after);
    killed_at_work += moved;
    if (after && *after == *read_file(whole, 1 << 26))
      break;  // killed while exiting
    // Wait longer next time if the run made no step, less if it did.
    seconds *= moved ? 0.97 : 1.25;
  }
  EXPECT_EQ(unfinished_files(), 0);
  EXPECT_GE(killed_at_work, 1);
  EXPECT_EQ(*read_file(part, 1 << 26), *read_file(whole, 1 << 26));
}

INSTANTIATE_TEST_SUITE_P(
    Meshes, TrainKilled,
    ::testing::Values(Devices{"on_one"}, Devices{"on_two", "xla", "data=2"},
                      Devices{"on_two_of_a_row", "xla", "seq=2"},
                      Devices{"on_two_of_heads", "xla", "head=2"},
                      Devices{"by_our_cpu_kernels", "cpu"}),
    [](const auto& of) { return std::string(of.param.name); });

}  // namespace
}  // namespace tessera::cli
