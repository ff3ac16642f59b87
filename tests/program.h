// tests/program.h: a fixture for tests that run the program as a user does:
// with arguments, an exit code, output text and a folder for files.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "base/files.h"
#include "bench/commands.h"
#include "cli/program.h"
#include "cli/tessera.h"
#include "tests/json_fields.h"
#include "tests/temp_folder.h"

namespace tessera::testing {

using Arguments = std::vector<std::string>;

inline int run_tessera(const Arguments& arguments) {
  return cli::run_program(cli::tessera_program(), arguments);
}
inline int run_bench(const Arguments& arguments) {
  return cli::run_program(bench::bench_program(), arguments);
}

inline std::span<const cli::JsonField> json_fields_of(
    const std::string& command) {
  for (const cli::Command& c : cli::tessera_program().commands) {
    if (c.name == command) return c.json_fields;
  }
  return {};
}

// Expects that the command's help lists all fields of its JSON. Receipts are
// not listed there.
inline void expect_listed(const std::string& command, const std::string& out) {
  const auto json = nlohmann::json::parse(out, nullptr, false);
  if (!json.is_object()) return;
  if (json.contains("schema") && json.contains("operation")) return;
  const auto listed = json_fields_of(command);
  if (listed.empty()) return;
  EXPECT_EQ(use_of_fields(listed, json).unlisted, std::set<std::string>())
      << "of `tessera " << command << " --help`";
}

class Program : public ::testing::Test {
 protected:
  // Runs `tessera`. Output goes to out_ and err_, the exit code also to code_.
  int program(const Arguments& arguments) {
    captured(run_tessera, arguments);
    const bool printed =
        code_ != cli::kRefused && std::find(arguments.begin(), arguments.end(),
                                            "--json") != arguments.end();
    if (printed) expect_listed(arguments[0], out_);
    return code_;
  }
  // Runs `tessera-bench`.
  int bench(const Arguments& arguments) {
    return captured(run_bench, arguments);
  }
  int captured(int (*run)(const Arguments&), const Arguments& arguments) {
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    code_ = run(arguments);
    err_ = ::testing::internal::GetCapturedStderr();
    out_ = ::testing::internal::GetCapturedStdout();
    return code_;
  }
  // Runs `tessera` with the arguments of all calls, and more.
  int program(Arguments arguments, const Arguments& more) {
    arguments.insert(arguments.end(), more.begin(), more.end());
    return program(arguments);
  }

  std::string file(const std::string& name) const { return folder_.file(name); }
  // The number of temporary files that killed writers have left.
  int64_t unfinished_files() const {
    const std::filesystem::directory_iterator files(folder_.path());
    return std::count_if(begin(files), end(files), [](const auto& entry) {
      return is_unfinished_name(entry.path().filename().string());
    });
  }

  const TempFolder folder_;
  int code_ = -1;
  std::string out_, err_;
};

}  // namespace tessera::testing
