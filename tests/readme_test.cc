// tests/readme_test.cc: the C++ in README is part of a program that builds and
// runs, and docs/ list exactly the headers that exist.
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "base/child.h"
#include "base/files.h"
#include "base/text.h"
#include "tests/plugins.h"

namespace tessera {
namespace {

constexpr const char* kProgram = "examples/consumer/train.cc";
constexpr int64_t kMaxBytes = 1 << 20;

std::vector<std::string> lines_of(const std::string& path) {
  const auto text = read_file(path, kMaxBytes);
  EXPECT_TRUE(text.ok()) << path;
  std::vector<std::string> out(1);
  if (!text) return out;
  for (const char c : *text) {
    if (c == '\n') {
      out.emplace_back();
    } else {
      out.back() += c;
    }
  }
  return out;
}

// The lines between two lines, without these two.
std::vector<std::string> between(const std::vector<std::string>& lines,
                                 const std::string& begin,
                                 const std::string& end) {
  std::vector<std::string> out;
  bool within = false;
  for (const std::string& line : lines) {
    if (within && line == end) return out;
    if (within) out.push_back(line);
    within = within || line == begin;
  }
  ADD_FAILURE() << "no " << begin << " to " << end;
  return out;
}

TEST(Readme, ShowsTheTrainingLoopThatRuns) {
  std::vector<std::string> shown =
      between(lines_of("README.md"), "```cpp", "```");
  ASSERT_GT(shown.size(), 2U);
  EXPECT_LE(shown.size(), 25U);
  EXPECT_EQ(shown[0], "#include <tessera/tessera.h>");
  EXPECT_EQ(shown[1], "");
  shown.erase(shown.begin(), shown.begin() + 2);
  std::vector<std::string> runs =
      between(lines_of(kProgram), "  // README begins", "  // README ends");
  for (std::string& line : runs) {
    ASSERT_TRUE(line.starts_with("  ")) << line;
    line.erase(0, 2);
  }
  EXPECT_EQ(shown, runs);
}

class ReadmeExample : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Each, ReadmeExample,
                         ::testing::Values("cpu", "reference", "xla"),
                         [](const auto& each) {
                           return std::string(each.param);
                         });

TEST_P(ReadmeExample, RunsOnThisLane) {
  const std::string lane = GetParam();
  if (lane == "xla") {
    const auto plugin = testing::real_plugin("xla_cpu_pjrt");
    if (testing::is_absent(plugin)) GTEST_SKIP() << plugin.error().message;
  }
  const auto ran = run_child({TESSERA_README_EXAMPLE, lane}, {}, 120);
  ASSERT_TRUE(ran.ok()) << ran.error().message;
  EXPECT_EQ(ran->exit_code, 0) << ran->err;
  EXPECT_NE(
      ran->out.find("9 passes forward and 9 backward on the " + lane + " lane"),
      std::string::npos)
      << ran->out;
}

TEST(Readme, SaysWhatEachHeaderIsFor) {
  std::set<std::string> there, said;
  for (const auto& file :
       std::filesystem::directory_iterator("include/tessera")) {
    there.insert(file.path().filename());
  }
  there.erase("tessera.h");  // includes all others
  for (const std::string& line : lines_of("docs/README.md")) {
    const size_t end = line.find(".h` | ");
    if (!line.starts_with("| `") || end == std::string::npos) continue;
    const std::string header = line.substr(3, end - 1);
    EXPECT_TRUE(said.insert(header).second) << header << " has two lines";
  }
  EXPECT_EQ(said, there);
}

TEST(ReadmeExample, SaysWhatIsWrong) {
  const auto ran = run_child({TESSERA_README_EXAMPLE, "gpu"}, {}, 120);
  ASSERT_TRUE(ran.ok()) << ran.error().message;
  EXPECT_EQ(ran->exit_code, 1);
  EXPECT_EQ(ran->err.find("[dispatch] a lane must be one of"), 0U) << ran->err;
}

}  // namespace
}  // namespace tessera
