// pjrt/execute_test.cc: runs programs on real plugins, and on a plugin that
// fails.
#include "pjrt/execute.h"

#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "base/child.h"
#include "base/files.h"
#include "tests/cpu_plugin.h"

namespace tessera::pjrt {
namespace {

using tessera::testing::counted;
using tessera::testing::CpuPlugin;
using tessera::testing::fake_plugin;

// A program that returns a sum, a difference and a scalar.
constexpr const char* kProgram =
    "module @sum {\n"
    "  func.func @main(%a: tensor<2x3xf32>, %b: tensor<2x3xf32>)\n"
    "      -> (tensor<2x3xf32>, tensor<2x3xf32>, tensor<i1>) {\n"
    "    %0 = stablehlo.add %a, %b : tensor<2x3xf32>\n"
    "    %1 = stablehlo.subtract %a, %b : tensor<2x3xf32>\n"
    "    %2 = stablehlo.constant dense<true> : tensor<i1>\n"
    "    return %0, %1, %2 : tensor<2x3xf32>, tensor<2x3xf32>, tensor<i1>\n"
    "  }\n"
    "}\n";
constexpr float kA[] = {1, 2, 3, 4, 5, 6};
constexpr float kB[] = {10, 20, 30, 40, 50, 60};
const ArrayType kType = {Dtype::f32, {2, 3}};

// A program with `inputs`, and one line that makes %0 of type `output`.
std::string program_of(const std::string& inputs, const std::string& line,
                       const std::string& output) {
  return "module { func.func @main(" + inputs + ") -> " + output + " {\n" +
         line + "\n return %0 : " + output + "\n} }\n";
}

// The variable that passes a file to a child of these tests.
constexpr const char* kFile = "TESSERA_TEST_FILE";

class PjrtExecute : public CpuPlugin {
 protected:
  void SetUp() override {
    CpuPlugin::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    device_ = &device();
  }
  void on_device(size_t number) { device_ = &device(number); }

  Result<Loaded> compile_it(std::string_view program) const {
    return compile(*client_, *device_, program);
  }
  Buffer send(const ArrayType& type, const void* data) const {
    auto buffer = to_device(*client_, *device_, type, data);
    EXPECT_TRUE(buffer.ok()) << buffer.error().message;
    return std::move(*buffer);
  }
  // Expects kProgram's outputs for kA and kB.
  void expect_sums(const Loaded& program) const {
    const Buffer a = send(kType, kA);
    const Buffer b = send(kType, kB);
    const Buffer* const inputs[] = {&a, &b};
    const auto out = execute(program, inputs);
    ASSERT_TRUE(out.ok()) << out.error().message;
    ASSERT_EQ(out->size(), 3u);
    EXPECT_EQ(floats((*out)[0]), std::vector<float>({11, 22, 33, 44, 55, 66}));
    EXPECT_EQ(floats((*out)[1]),
              std::vector<float>({-9, -18, -27, -36, -45, -54}));
    char yes = 0;
    EXPECT_TRUE(to_host((*out)[2], &yes, 1).ok());
    EXPECT_EQ(yes, 1);
    EXPECT_EQ((*out)[0].device(), device_->handle);
    EXPECT_EQ(floats(a), std::vector<float>(kA, kA + 6));
  }
  std::string refusal(const Loaded& program,
                      std::vector<const Buffer*> inputs) const {
    const auto out = execute(program, inputs);
    return out ? "it ran" : out.error().message;
  }
  // Runs only this test in a child process.
  ChildRun again(const std::string& file) const {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    auto run = run_child({std::filesystem::read_symlink("/proc/self/exe"),
                          std::string("--gtest_filter=") +
                              test->test_suite_name() + "." + test->name()},
                         {{kFile, file}}, 120);
    EXPECT_TRUE(run.ok());
    return run ? *run : ChildRun();
  }

  const Device* device_ = nullptr;
};
TESSERA_FOR_CPU_PLUGINS(PjrtExecute);

TEST_P(PjrtExecute, RunsAProgram) {
  const auto program = compile_it(kProgram);
  ASSERT_TRUE(program.ok()) << program.error().message;
  ASSERT_TRUE(program->inputs().has_value());
  EXPECT_EQ(*program->inputs(), std::vector<ArrayType>({kType, kType}));
  EXPECT_EQ(program->outputs(),
            std::vector<ArrayType>({kType, kType, {Dtype::boolean, {}}}));
  for (int i = 0; i < 3; ++i) expect_sums(*program);
}

TEST_P(PjrtExecute, EachDeviceRunsItsOwn) {
  ASSERT_GE(client_->devices().size(), 3u);
  for (const size_t number : {2u, 1u, 0u}) {
    on_device(number);
    const auto program = compile_it(kProgram);
    ASSERT_TRUE(program.ok()) << program.error().message;
    EXPECT_EQ(&program->device(), &device(number));
    expect_sums(*program);
  }
}

TEST_P(PjrtExecute, EveryDtypeGoesThrough) {
  struct Case {
    Dtype dtype;
    const char* name;
  };
  for (const auto& [dtype, name] :
       {Case{Dtype::i32, "i32"}, Case{Dtype::i64, "i64"},
        Case{Dtype::f16, "f16"}, Case{Dtype::bf16, "bf16"},
        Case{Dtype::f32, "f32"}, Case{Dtype::f64, "f64"}, Case{Dtype::i8, "i8"},
        Case{Dtype::i16, "i16"}, Case{Dtype::u8, "ui8"},
        Case{Dtype::boolean, "i1"}}) {
    SCOPED_TRACE(name);
    const std::string type = std::string("tensor<2x4x") + name + ">";
    const std::string turned = std::string("tensor<4x2x") + name + ">";
    const auto program =
        compile_it(program_of("%a: " + type,
                              "%0 = stablehlo.transpose %a, dims = [1, 0] : (" +
                                  type + ") -> " + turned,
                              turned));
    ASSERT_TRUE(program.ok()) << program.error().message;
    EXPECT_EQ((*program->inputs())[0], (ArrayType{dtype, {2, 4}}));
    EXPECT_EQ(program->outputs()[0], (ArrayType{dtype, {4, 2}}));
    const auto width = static_cast<size_t>(byte_width(dtype));
    std::string data(8 * width, '\0');
    for (size_t i = 0; i < data.size(); ++i) {
      data[i] = static_cast<char>(dtype == Dtype::boolean ? i % 3 == 0 : i + 1);
    }
    const Buffer in = send({dtype, {2, 4}}, data.data());
    const Buffer* const inputs[] = {&in};
    const auto out = execute(*program, inputs);
    ASSERT_TRUE(out.ok()) << out.error().message;
    std::string back(data.size(), '#');
    ASSERT_TRUE(
        to_host((*out)[0], back.data(), static_cast<int64_t>(back.size()))
            .ok());
    for (size_t row = 0; row < 2; ++row) {
      for (size_t column = 0; column < 4; ++column) {
        EXPECT_EQ(back.substr((column * 2 + row) * width, width),
                  data.substr((row * 4 + column) * width, width));
      }
    }
  }
}

TEST_P(PjrtExecute, NoInputsAndEmptyArraysAreProgramsToo) {
  const auto constant = compile_it(program_of(
      "", "%0 = stablehlo.constant dense<2.5> : tensor<f32>", "tensor<f32>"));
  ASSERT_TRUE(constant.ok()) << constant.error().message;
  EXPECT_TRUE(constant->inputs()->empty());
  const auto out = execute(*constant, {});
  ASSERT_TRUE(out.ok()) << out.error().message;
  EXPECT_EQ(floats((*out)[0]), std::vector<float>({2.5F}));

  const auto empty = compile_it(program_of(
      "%a: tensor<0x4xf32>", "%0 = stablehlo.add %a, %a : tensor<0x4xf32>",
      "tensor<0x4xf32>"));
  ASSERT_TRUE(empty.ok()) << empty.error().message;
  const Buffer in = send({Dtype::f32, {0, 4}}, nullptr);
  const Buffer* const inputs[] = {&in};
  const auto none = execute(*empty, inputs);
  ASSERT_TRUE(none.ok()) << none.error().message;
  EXPECT_TRUE(floats((*none)[0]).empty());
}

// An output is an array of its own, and inputs stay valid, even if the program
// lets an input become the output.
TEST_P(PjrtExecute, OutputsOutliveInputsAndInputsStay) {
  for (const char* program :
       {"module { func.func @main(%a: tensor<2x3xf32>) -> tensor<2x3xf32> {\n"
        " return %a : tensor<2x3xf32>\n} }",
        "module { func.func @main(%a: tensor<2x3xf32> {tf.aliasing_output = 0 "
        ": i32}) -> tensor<2x3xf32> {\n"
        " %0 = stablehlo.add %a, %a : tensor<2x3xf32>\n"
        " return %0 : tensor<2x3xf32>\n} }"}) {
    const auto loaded = compile_it(program);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    alignas(kInPlaceAlignment) float data[6];
    std::copy(kA, kA + 6, data);
    std::vector<Buffer> kept;
    {
      const Buffer in = send(kType, data);
      const Buffer* const inputs[] = {&in};
      for (int i = 0; i < 2; ++i) {
        auto out = execute(*loaded, inputs);
        ASSERT_TRUE(out.ok()) << out.error().message;
        kept.push_back(std::move((*out)[0]));
      }
      EXPECT_EQ(floats(in), std::vector<float>(kA, kA + 6));
    }
    std::fill(data, data + 6, -1.0F);
    for (const Buffer& out : kept) {
      EXPECT_EQ(std::abs(floats(out)[5]), floats(out)[5]);
    }
    EXPECT_EQ(floats(kept[0]), floats(kept[1]));
  }
}

TEST_P(PjrtExecute, OneInputMayServeTwice) {
  const auto program = compile_it(kProgram);
  ASSERT_TRUE(program.ok()) << program.error().message;
  const Buffer a = send(kType, kA);
  const Buffer* const inputs[] = {&a, &a};
  const auto out = execute(*program, inputs);
  ASSERT_TRUE(out.ok()) << out.error().message;
  EXPECT_EQ(floats((*out)[0]), std::vector<float>({2, 4, 6, 8, 10, 12}));
}

TEST_P(PjrtExecute, WrongCallsAreRefusedByUs) {
  const auto program = compile_it(kProgram);
  ASSERT_TRUE(program.ok()) << program.error().message;
  const Buffer a = send(kType, kA);
  EXPECT_EQ(refusal(*program, {}),
            "[pjrt] a program must get its 2 inputs, found 0");
  EXPECT_EQ(refusal(*program, {&a}),
            "[pjrt] a program must get its 2 inputs, found 1");
  EXPECT_EQ(refusal(*program, {&a, &a, &a}),
            "[pjrt] a program must get its 2 inputs, found 3");
  const Buffer turned = send({Dtype::f32, {3, 2}}, kA);
  EXPECT_EQ(refusal(*program, {&a, &turned}),
            "[pjrt] an input must be F32 [2, 3], found F32 [3, 2] for input 1");
  const Buffer whole = send({Dtype::i32, {2, 3}}, kA);
  EXPECT_EQ(refusal(*program, {&whole, &a}),
            "[pjrt] an input must be F32 [2, 3], found I32 [2, 3] for input 0");
  on_device(1);
  const Buffer there = send(kType, kA);
  EXPECT_EQ(refusal(*program, {&a, &there}),
            "[pjrt] an input must be on the program's device cpu 0, found "
            "another one for input 1");
  on_device(0);
  const auto other = open_client(*plugin_, {{"cpu_device_count", int64_t{1}}});
  ASSERT_TRUE(other.ok());
  auto theirs = to_device(**other, (*other)->devices()[0], kType, kA);
  ASSERT_TRUE(theirs.ok());
  EXPECT_EQ(refusal(*program, {&*theirs, &a}),
            "[pjrt] an input must be on the program's device cpu 0, found "
            "another one for input 0");
  expect_sums(*program);
}

TEST_P(PjrtExecute, WhatDoesNotCompileSaysWhy) {
  const auto said = [&](const std::string& text) {
    const auto program = compile_it(text);
    return program ? "it compiled" : program.error().message;
  };
  EXPECT_EQ(said("module { func.func @main( { }"),
            "[pjrt] the program must compile, found UNKNOWN: '-:1:26: error: "
            "expected non-function type' for cpu 0");
  const std::string type = "tensor<4xf32>";
  EXPECT_EQ(said(program_of("%a: " + type,
                            "%0 = stablehlo.custom_call @nobody(%a) : (" +
                                type + ") -> " + type,
                            type)),
            "[pjrt] the program must compile, found NOT_FOUND: 'No registered "
            "implementation for untyped custom call to nobody for Host' for "
            "cpu 0");
  for (const std::string& text :
       {std::string(), std::string("\0\0\0\0", 4), std::string("ML\xefR\x01"),
        std::string("module {}")}) {
    EXPECT_TRUE(said(text).starts_with("[pjrt] the program must compile, "))
        << said(text);
  }
}

TEST_P(PjrtExecute, TypesThatWeLackAreNamed) {
  const auto said = [&](const std::string& from, const std::string& to) {
    const auto program = compile_it(
        program_of("%a: " + from,
                   "%0 = stablehlo.convert %a : (" + from + ") -> " + to, to));
    return program ? "it compiled" : program.error().message;
  };
  EXPECT_EQ(said("tensor<4xui32>", "tensor<4xf32>"),
            "[pjrt] a program's inputs must be of BOOL, I8, I16, I32, I64, U8, "
            "F16, BF16, F32 or F64, found XLA's type 8 for input 0");
  EXPECT_EQ(said("tensor<4xf32>", "tensor<4xui32>"),
            "[pjrt] a program's outputs must be of BOOL, I8, I16, I32, I64, "
            "U8, F16, BF16, F32 or F64, found PJRT's type 8 for output 0");
}

TEST_P(PjrtExecute, TwoThreadsRunOneProgramAtOnce) {
  const auto program = compile_it(program_of(
      "%a: tensor<256x256xf32>",
      "%0 = stablehlo.dot_general %a, %a, contracting_dims = [1] x [0] : "
      "(tensor<256x256xf32>, tensor<256x256xf32>) -> tensor<256x256xf32>",
      "tensor<256x256xf32>"));
  ASSERT_TRUE(program.ok()) << program.error().message;
  std::vector<std::thread> threads;
  std::vector<int> right(4);
  for (size_t t = 0; t < right.size(); ++t) {
    threads.emplace_back([&, t] {
      // The program squares a multiple of the identity.
      const auto scale = static_cast<float>(t + 2);
      std::vector<float> data(256 * 256);
      for (size_t i = 0; i < 256; ++i) data[i * 257] = scale;
      for (int i = 0; i < 20; ++i) {
        auto in = to_device(*client_, *device_, {Dtype::f32, {256, 256}},
                            data.data());
        if (!in) return;
        const Buffer* const inputs[] = {&*in};
        const auto out = execute(*program, inputs);
        if (!out) return;
        const auto back = floats((*out)[0]);
        right[t] += back[257] == scale * scale && back[1] == 0;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(right, std::vector<int>(4, 20));
}

TEST_P(PjrtExecute, SerializedItRunsOnAnotherDevice) {
  const auto program = compile_it(kProgram);
  ASSERT_TRUE(program.ok()) << program.error().message;
  const auto executable = program->executable();
  ASSERT_TRUE(executable.ok()) << executable.error().message;
  const auto bytes = executable->serialize();
  ASSERT_TRUE(bytes.ok()) << bytes.error().message;
  for (const size_t number : {2u, 0u}) {
    on_device(number);
    const auto loaded = load(*client_, *device_, *bytes);
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    EXPECT_EQ(loaded->inputs(), program->inputs());
    EXPECT_EQ(loaded->outputs(), program->outputs());
    expect_sums(*loaded);
  }
}

// A child process makes the bytes.
TEST_P(PjrtExecute, SerializedItRunsInAnotherProcess) {
  if (const char* file = std::getenv(kFile)) {
    const auto program = compile_it(kProgram);
    ASSERT_TRUE(program.ok()) << program.error().message;
    ASSERT_TRUE(write_file(file, *program->executable()->serialize()).ok());
    return;
  }
  const std::string path =
      ::testing::TempDir() + "tessera_program_" + std::to_string(getpid());
  const ChildRun run = again(path);
  ASSERT_EQ(run.exit_code, 0) << run.out << run.err;
  const auto bytes = read_file(path, 1 << 26);
  std::filesystem::remove(path);
  ASSERT_TRUE(bytes.ok()) << bytes.error().message;
  const auto program = load(*client_, *device_, *bytes);
  ASSERT_TRUE(program.ok()) << program.error().message;
  expect_sums(*program);
}

TEST_P(PjrtExecute, BytesThatAreNoProgramAreRefused) {
  const auto program = compile_it(kProgram);
  ASSERT_TRUE(program.ok()) << program.error().message;
  const auto bytes = program->executable()->serialize();
  ASSERT_TRUE(bytes.ok()) << bytes.error().message;
  EXPECT_EQ(load(*client_, *device_, "").error().message,
            "[pjrt] a serialized program must have bytes, found none");
  for (const std::string& bad :
       {std::string("garbage"), bytes->substr(0, bytes->size() / 2),
        bytes->substr(0, bytes->size() - 1)}) {
    const auto loaded = load(*client_, *device_, bad);
    ASSERT_FALSE(loaded.ok());
    EXPECT_TRUE(loaded.error().message.starts_with(
        "[pjrt] a serialized program must load, found "))
        << loaded.error().message;
  }
}

// An input that is given up is gone if a result has its memory; an input that
// the program lets no result reuse is still valid.
TEST_P(PjrtExecute, WhatIsGivenUpBecomesTheResult) {
  const auto loaded = compile_it(
      "module { func.func @main(%a: tensor<2x3xf32> {tf.aliasing_output = 0 : "
      "i32}, %b: tensor<2x3xf32>) -> tensor<2x3xf32> {\n"
      " %0 = stablehlo.add %a, %b : tensor<2x3xf32>\n"
      " return %0 : tensor<2x3xf32>\n} }");
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  for (const Reused reused : {Reused::kept, Reused::given}) {
    auto a = to_device(*client_, *device_, kType, kA, DataStays::during_call);
    ASSERT_TRUE(a.ok());
    const Buffer b = send(kType, kB);
    const Inputs inputs = {&*a, &b};
    auto out = execute_on_all(*loaded, std::span(&inputs, 1), reused);
    ASSERT_TRUE(out.ok()) << out.error().message;
    EXPECT_EQ(is_gone(*a), reused == Reused::given);
    EXPECT_FALSE(is_gone(b));
    if (reused == Reused::given) {
      EXPECT_FALSE(execute(*loaded, inputs));
    } else {
      EXPECT_EQ(floats(*a), std::vector<float>(kA, kA + 6));
    }
    EXPECT_EQ(floats(b), std::vector<float>(kB, kB + 6));
    EXPECT_EQ(floats(out->front()[0]),
              std::vector<float>({11, 22, 33, 44, 55, 66}));
  }
}

// A program that broadcasts a scalar to an array of `bytes` bytes.
std::string grown(int64_t bytes) {
  const std::string type = "tensor<" + std::to_string(bytes / 4) + "xf32>";
  return program_of("%a: tensor<f32>",
                    "%0 = stablehlo.broadcast_in_dim %a, dims = [] : "
                    "(tensor<f32>) -> " +
                        type,
                    type);
}

TEST_P(PjrtExecute, MoreThanTheMachineHasIsALimit) {
  const auto program = compile_it(grown(int64_t{1} << 42));
  ASSERT_TRUE(program.ok()) << program.error().message;
  EXPECT_EQ(program->run_bytes(), int64_t{1} << 42);
  const float one = 1;
  const Buffer in = send({Dtype::f32, {}}, &one);
  const Buffer* const inputs[] = {&in};
  const auto out = execute(*program, inputs);
  ASSERT_FALSE(out.ok());
  EXPECT_EQ(out.error().kind, ErrorKind::limit);
  EXPECT_TRUE(out.error().message.starts_with(
      "[pjrt] a run's outputs and scratch must fit in memory, found "
      "4398046511104 bytes for "))
      << out.error().message;
}

// Memory that seems available but is not, in a child: the plugin reports its
// own error, and the client goes on.
TEST_P(PjrtExecute, WhenThePluginGetsNoMemoryItIsALimit) {
#ifdef TESSERA_SANITIZED
  GTEST_SKIP() << "the sanitizer has the address space";
#endif
  constexpr int64_t kBytes = int64_t{3} << 29;
  if (std::getenv(kFile)) {
    const auto program = compile_it(grown(kBytes));
    ASSERT_TRUE(program.ok()) << program.error().message;
    const auto small = compile_it(kProgram);
    ASSERT_TRUE(small.ok());
    expect_sums(*small);
    const float one = 1;
    const Buffer in = send({Dtype::f32, {}}, &one);
    // The sixth number is the data size; nothing checks this limit beforehand.
    std::ifstream statm("/proc/self/statm");
    int64_t pages = 0;
    for (int i = 0; i < 6; ++i) statm >> pages;
    const rlim_t most =
        static_cast<rlim_t>(pages * sysconf(_SC_PAGESIZE) + kBytes / 2);
    const rlimit limit = {most, most};
    ASSERT_EQ(setrlimit(RLIMIT_DATA, &limit), 0);
    const Buffer* const inputs[] = {&in};
    const auto out = execute(*program, inputs);
    ASSERT_FALSE(out.ok());
    EXPECT_EQ(out.error().kind, ErrorKind::limit);
    EXPECT_EQ(out.error().message,
              "[pjrt] the program must run, found RESOURCE_EXHAUSTED: 'Out of "
              "memory allocating 1610612736 bytes.' for cpu 0");
    expect_sums(*small);
    return;
  }
  const ChildRun run = again("yes");
  EXPECT_EQ(run.exit_code, 0) << run.out << run.err;
}

class FaultyExecute : public ::testing::Test {
 protected:
  void SetUp() override {
    TESSERA_NEEDS_PLUGINS();
    const auto plugin = load_plugin(path_);
    ASSERT_TRUE(plugin.ok()) << plugin.error().message;
    const auto client = open_client(**plugin);
    ASSERT_TRUE(client.ok()) << client.error().message;
    client_ = *client;
    before_ = counted(path_, "fake_alive");
  }
  void TearDown() override {
    if (client_ == nullptr) return;  // skipped: nothing was loaded to count
    EXPECT_EQ(counted(path_, "fake_alive"), before_);
  }
  Result<std::vector<Buffer>> run(const std::string& text) const {
    auto program = compile(*client_, client_->devices()[1], text);
    if (!program) return program.error();
    EXPECT_FALSE(program->inputs().has_value());
    auto in = to_device(*client_, client_->devices()[1], {Dtype::u8, {1}}, "x");
    if (!in) return in.error();
    const Buffer* const inputs[] = {&*in};
    return execute(*program, inputs);
  }
  std::string said(const std::string& text) const {
    const auto out = run(text);
    return out ? "it ran" : out.error().message;
  }

  const std::string path_ = fake_plugin("faulty");
  const Client* client_ = nullptr;
  int before_ = 0;
};

TEST_F(FaultyExecute, ErrorsNameTheDeviceAndNothingIsLeft) {
  EXPECT_EQ(said("does not compile"),
            "[pjrt] the program must compile, found INVALID_ARGUMENT: 'at line "
            "1' for device 9");
  EXPECT_EQ(said("nothing"),
            "[pjrt] the program must compile, found nothing for device 9");
  EXPECT_EQ(said("does not start"),
            "[pjrt] the program must run, found ABORTED: 'the core is halted' "
            "for device 9");
  EXPECT_EQ(said("does not end"),
            "[pjrt] the program must run, found INTERNAL: 'a fault in the "
            "core' for device 9");
  EXPECT_EQ(said("forgets an output"),
            "[pjrt] the program must run, found an output missing for device "
            "9");
  EXPECT_TRUE(said("odd count")
                  .starts_with("[pjrt] an executable must tell the types of "
                               "its outputs, found 1 and 2 "
                               "for 2 outputs"))
      << said("odd count");
  EXPECT_TRUE(said("odd type").ends_with("found PJRT's type 77 for output 1"))
      << said("odd type");
}

// On two devices: the outputs of the other device are freed, too.
TEST_F(FaultyExecute, ADeviceOfSeveralThatFailsIsNamed) {
  const std::vector<Device>& all = client_->devices();
  const Devices both({&all[0], &all[1]});
  const auto run_both = [&](const std::string& text) {
    auto program = compile(*client_, both, text);
    if (!program) return program.error().message;
    const std::vector<Inputs> inputs(2);
    auto out = execute_on_all(*program, inputs);
    return out ? std::to_string(out->size()) + " ran" : out.error().message;
  };
  EXPECT_EQ(run_both("well"), "2 ran");
  EXPECT_EQ(run_both("does not end"),
            "[pjrt] the program must run, found INTERNAL: 'a fault in the "
            "core' for device 9");
  EXPECT_EQ(run_both("all do not end"),
            "[pjrt] the program must run, found INTERNAL: 'a fault in the "
            "core' for device 7");
  EXPECT_EQ(run_both("does not start"),
            "[pjrt] the program must run, found ABORTED: 'the core is halted' "
            "for device 7");
  EXPECT_EQ(run_both("forgets an output"),
            "[pjrt] the program must run, found an output missing for device "
            "9");
  EXPECT_EQ(run_both("well"), "2 ran");
}

TEST_F(FaultyExecute, AProgramWithoutFaultsRuns) {
  const auto out = run("well");
  ASSERT_TRUE(out.ok()) << out.error().message;
  ASSERT_EQ(out->size(), 2u);
  EXPECT_EQ((*out)[0].type(), (ArrayType{Dtype::u8, {3}}));
  char back[3];
  ASSERT_TRUE(to_host((*out)[0], back, 3).ok());
  EXPECT_EQ(std::string(back, 3), "abc");
  const auto loaded = load(*client_, client_->devices()[0], "well");
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_TRUE(execute(*loaded, {}).ok());
}

TEST(ExecuteOfAnOlderPlugin, SaysWhatItLacks) {
  TESSERA_NEEDS_PLUGINS();
  const auto plugin = load_plugin(fake_plugin("before_execute"));
  ASSERT_TRUE(plugin.ok()) << plugin.error().message;
  const auto client = open_client(**plugin);
  ASSERT_TRUE(client.ok()) << client.error().message;
  const auto program = compile(**client, (*client)->devices()[0], "well");
  ASSERT_FALSE(program.ok());
  EXPECT_EQ(program.error().kind, ErrorKind::unavailable);
  EXPECT_TRUE(program.error().message.starts_with(
      "[pjrt] an executable must tell the types of its outputs, found a plugin "
      "without PJRT_Executable_OutputElementTypes for "))
      << program.error().message;
  const auto loaded = load(**client, (*client)->devices()[0], "well");
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().message,
            "[pjrt] a serialized program must load, found a plugin without "
            "PJRT_Executable_DeserializeAndLoad for device 7");
}

}  // namespace
}  // namespace tessera::pjrt
