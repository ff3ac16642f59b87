// cli/pack/killed_test.cc: `tessera pack`, killed again and again at random
// moments, and resumed.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "base/child.h"
#include "base/files.h"
#include "data/arrow_component.h"
#include "tests/program.h"

namespace tessera::cli {
namespace {

using nlohmann::json;
using testing::Arguments;
namespace fs = std::filesystem;

class PackKilled : public testing::Program {
 protected:
  void SetUp() override {
    std::mt19937_64 random(3);
    std::string text;
    // More documents than two threads read ahead, so that files are finished
    // during the run.
    for (int d = 0; d < 4000; ++d) {
      json ids = json::array();
      for (auto n = random() % 800; n > 0; --n) ids.push_back(random() % 50000);
      text += json{{"input_ids", ids}, {"source", "a"}}.dump() + "\n";
    }
    ASSERT_TRUE(write_file(file("a.jsonl"), text));
  }
  Arguments asked(const std::string& out) const {
    return {"pack",
            file("a.jsonl"),
            "--tokens",
            "1024",
            "--window-rows",
            "32",
            "--rows-per-file",
            "5",
            "--strategy",
            "cost",
            "--stats",
            out + ".svg",
            "-o",
            out,
            "--json",
            "--threads",
            "2"};
  }
  // Runs another process and kills it after `seconds`.
  ChildRun run(const std::string& out, double seconds) const {
    Arguments command = asked(out);
    command.insert(command.begin(), TESSERA_PROGRAM);
    auto ran = run_child(command, {}, seconds);
    EXPECT_TRUE(ran.ok()) << ran.error().message;
    return ran.ok() ? *ran : ChildRun{};
  }
  static std::map<std::string, std::string> files_of(const std::string& path) {
    std::map<std::string, std::string> files;
    for (const auto& entry : fs::directory_iterator(path)) {
      files[entry.path().filename().string()] =
          *read_file(entry.path(), 1 << 28);
    }
    return files;
  }
};

TEST_F(PackKilled, GoesOnToTheSameRowsAndAccount) {
  const std::string whole = file("whole"), part = file("part");
  const auto begin = std::chrono::steady_clock::now();
  const ChildRun first = run(whole, 60);
  const std::chrono::duration<double> took =
      std::chrono::steady_clock::now() - begin;
  ASSERT_EQ(first.exit_code, 0) << first.err;
  json expected = json::parse(first.out);
  EXPECT_EQ(expected["resumed"], json({{"files", 0}, {"rows", 0}}));
  expected.erase("resumed");
  expected.erase("documents_per_second");

  std::mt19937_64 random(11);
  int resumed = 0;
  for (int round = 0; round < 4 || (resumed == 0 && round < 20); ++round) {
    fs::remove_all(part);
    for (int runs = 0;; ++runs) {
      ASSERT_LT(runs, 100);
      // From the ninth run on there is enough time to finish.
      const double limit =
          runs < 8 ? took.count() * static_cast<double>(random() % 1000) / 1000
                   : 60;
      const ChildRun ran = run(part, limit);
      if (ran.timed_out) {
        // The run may have ended just before it was killed.
        if (fs::exists(part) && !fs::exists(part + "/.unfinished") &&
            !fs::is_empty(part)) {
          break;
        }
        continue;
      }
      ASSERT_EQ(ran.exit_code, 0) << ran.err;
      json found = json::parse(ran.out);
      const auto files = found["resumed"]["files"].get<int64_t>();
      resumed += files > 0 ? 1 : 0;
      const auto rows = found["resumed"]["rows"].get<int64_t>();
      EXPECT_EQ(rows, std::min(5 * files, expected["rows"].get<int64_t>()));
      EXPECT_EQ(ran.err,
                files == 0 ? ""
                           : fmt::format("tessera: going on after {} rows of a "
                                         "run that ended\n",
                                         rows));
      found.erase("resumed");
      found.erase("documents_per_second");
      EXPECT_EQ(found, expected);
      EXPECT_EQ(*read_file(part + ".svg", 1 << 24),
                *read_file(whole + ".svg", 1 << 24));
      break;
    }
    EXPECT_EQ(files_of(part), files_of(whole));
  }
  EXPECT_GT(resumed, 0);
}

// One file is written from the start. The next run reuses and then removes what
// a killed run left next to it, and writes what a run that was never killed
// writes.
TEST_F(PackKilled, LeavesNothingBesideOneFile) {
  if (auto found = data::arrow_component(); !found) {
    GTEST_SKIP() << found.error().message;
  }
  const std::string whole = file("whole.parquet"), out = file("rows.parquet");
  ASSERT_EQ(run(whole, 60).exit_code, 0);
  int64_t left = 0;
  double seconds = 0.01;
  for (int run = 0; run < 12 || left == 0; ++run, seconds *= 1.4) {
    const ChildRun ran = this->run(out, seconds);
    EXPECT_LE(unfinished_files(), 1);
    if (!ran.timed_out) break;
    left += unfinished_files();
  }
  EXPECT_GT(left, 0);
  const ChildRun ran = run(out, 60);
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(unfinished_files(), 0);
  // GoogleTest would print the files whole.
  EXPECT_TRUE(*read_file(out, 1 << 28) == *read_file(whole, 1 << 28));
}

}  // namespace
}  // namespace tessera::cli
