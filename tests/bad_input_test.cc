// tests/bad_input_test.cc: bad input through the command line: each case with
// its exact message, exit code 2, and nothing written.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "cli/program.h"

namespace tessera::cli {
namespace {

using Arguments = std::vector<std::string>;

struct Case {
  Arguments arguments;  // {DIR} is a folder with the files below
  std::string message;  // first line of stderr, after "tessera: "
};

// `tessera plan --q-len 64 --mask <mask>` and more.
Arguments plan(const std::string& mask, Arguments more = {}) {
  Arguments a = {"plan", "--q-len", "64", "--mask", mask};
  a.insert(a.end(), more.begin(), more.end());
  return a;
}

std::vector<Case> cases() {
  return {
#include "tests/bad_input_cases.inc"
  };
}

std::string with_folder(std::string text, const std::string& folder) {
  for (size_t at; (at = text.find("{DIR}")) != std::string::npos;) {
    text.replace(at, 5, folder);
  }
  return text;
}

void write(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

void write_files(const std::string& folder) {
  std::filesystem::create_directories(folder);
  write(folder + "/empty.txt", "");
  write(folder + "/words.txt", "10\nten\n");
  write(folder + "/long.txt", "60\n5\n");
  write(folder + "/two_rows.txt", "10\n\n20\n");
  write(folder + "/not.npy", "\x93NUMPY\x01");
  write(folder + "/not.safetensors", "12345678");
  write(folder + "/not.plan", "hello");
  write(folder + "/unknown.json", R"({"mask": "full", "q_lne": 64})");
  write(folder + "/dropout.json", R"({"mask": "full", "dropout": 0.1})");
  write(folder + "/float.json", R"({"mask": "full", "q_len": 64.5})");
  write(folder + "/twice.json", R"({"q_len": 64, "q_len": 65})");
  write(folder + "/broken.json", R"({"q_len": )");
  write(folder + "/array.json", "[]");
  write(folder + "/whole.json", R"({"mask": "full", "q_len": 64})");
}

TEST(BadInput, HasItsMessageAndWritesNothing) {
  const std::string folder =
      testing::TempDir() + "tessera_bad_input_" + std::to_string(getpid());
  write_files(folder);
  const std::string out = folder + "/out.plan";
  size_t count = 0;
  for (const Case& c : cases()) {
    Arguments arguments;
    for (const std::string& a : c.arguments) {
      arguments.push_back(with_folder(a, folder));
    }
    if (arguments.size() > 0 && arguments[0] == "plan") {
      arguments.insert(arguments.end(), {"-o", out});
    }
    testing::internal::CaptureStderr();
    testing::internal::CaptureStdout();
    const int code = run_program(arguments);
    const std::string said = testing::internal::GetCapturedStderr();
    const std::string printed = testing::internal::GetCapturedStdout();
    const std::string line = testing::PrintToString(c.arguments);
    EXPECT_EQ(said.substr(0, said.find('\n')),
              "tessera: " + with_folder(c.message, folder))
        << line;
    EXPECT_EQ(code, 2) << line;
    EXPECT_EQ(printed, "") << line;
    EXPECT_FALSE(std::filesystem::exists(out)) << line;
    ++count;
  }
  EXPECT_GE(count, 60u);
  std::filesystem::remove_all(folder);
}

TEST(BadInput, PointsAtTheColumn) {
  testing::internal::CaptureStderr();
  EXPECT_EQ(run_program(plan("causal & wndow(3, 0)")), 2);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_NE(said.find("\n  causal & wndow(3, 0)\n           ^\n"),
            std::string::npos)
      << said;
}

TEST(BadInput, IsOneJsonObjectWithJson) {
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  EXPECT_EQ(run_program(plan("causal &", {"--json"})), 2);
  testing::internal::GetCapturedStderr();
  const std::string printed = testing::internal::GetCapturedStdout();
  EXPECT_EQ(printed,
            "{\n  \"error\": {\n    \"column\": 9,\n    \"message\": \"[mask] "
            "expected an atom, '!' or '(', found the end at column 9\"\n  "
            "}\n}\n");
}

}  // namespace
}  // namespace tessera::cli
