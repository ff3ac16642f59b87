// cli/help_test.cc: the help of every command fits a width, has plain words,
// and lists only fields that some JSON has. All tests that read JSON check that
// it has no other fields (tests/program.h).
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "tests/program.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;
using tessera::testing::Arguments;

class HelpText : public tessera::testing::Program {
 protected:
  void expect_narrow(const Arguments& arguments) {
    constexpr size_t kColumns = 80;
    EXPECT_EQ(code_, kOk) << err_;
    std::istringstream lines(out_);
    for (std::string line; std::getline(lines, line);) {
      EXPECT_LE(line.size(), kColumns) << arguments[0] << ": " << line;
    }
  }

  // Each listed field is in the JSON of one of the calls, except paths that
  // begin with one of `apart`, which need a compiler or an internal error.
  void expect_each(const std::string& command,
                   const std::vector<Arguments>& calls,
                   const std::vector<std::string>& apart = {}) {
    const auto listed = testing::json_fields_of(command);
    const std::vector<std::string> paths = testing::listed_paths(listed);
    std::set<std::string> missing(paths.begin(), paths.end());
    EXPECT_EQ(missing.size(), paths.size()) << command << " lists one twice";
    for (const Arguments& more : calls) {
      program({command, "--json"}, more);
      const auto json = nlohmann::json::parse(out_, nullptr, false);
      ASSERT_TRUE(json.is_object()) << err_;
      for (const std::string& path : testing::use_of_fields(listed, json).met) {
        missing.erase(path);
      }
    }
    std::erase_if(missing, [&](const std::string& path) {
      return std::any_of(
          apart.begin(), apart.end(),
          [&](const std::string& begin) { return path.starts_with(begin); });
    });
    EXPECT_EQ(missing, std::set<std::string>()) << command;
  }

  Arguments with_causal(const Arguments& more) {
    Arguments out = {"--mask", "causal"};
    out.insert(out.end(), more.begin(), more.end());
    return out;
  }
  // Flags with drawn picks.
  Arguments with_picks(const Arguments& more) {
    Arguments out = {"--mask",  "causal & routed(top=2, block=16)",
                     "--q-len", "64",
                     "--tile",  "16",
                     "--picks", "clustered"};
    out.insert(out.end(), more.begin(), more.end());
    return out;
  }
};

TEST_F(HelpText, FitsATerminal) {
  program({"--help"});
  expect_narrow({"tessera"});
  for (const Command& command : tessera_program().commands) {
    program({command.name, "--help"});
    expect_narrow({command.name});
  }
  bench({"--help"});
  expect_narrow({"tessera-bench"});
  for (const Command& command : bench::bench_program().commands) {
    bench({command.name, "--help"});
    expect_narrow({command.name});
  }
}

// A text says what its flag or field is; these words would begin a fragment.
TEST_F(HelpText, BeginsWithNoFragment) {
  const std::set<std::string> fragments = {
      "and", "it", "of", "or", "that", "what", "who", "whoever", "whose"};
  const auto expect_whole = [&](const Command& command,
                                const std::string& about) {
    std::string word = about.substr(0, about.find_first_of(" ,:;"));
    std::transform(word.begin(), word.end(), word.begin(), [](unsigned char c) {
      return static_cast<char>(std::tolower(c));
    });
    EXPECT_FALSE(fragments.contains(word)) << command.name << ": " << about;
  };
  for (const cli::Program& whole :
       {tessera_program(), bench::bench_program()}) {
    for (const Command& command : whole.commands) {
      for (const Flag& flag : command.flags) expect_whole(command, flag.about);
      for (const JsonField& field : command.json_fields) {
        expect_whole(command, field.about);
      }
    }
  }
}

// Every command lists the fields of its JSON unless that is a receipt.
TEST_F(HelpText, ListsFields) {
  for (const Command& command : tessera_program().commands) {
    const bool receipt = command.name == "run" || command.name == "bridge";
    EXPECT_EQ(command.json_fields.empty(), receipt) << command.name;
    program({command.name, "--help"});
    EXPECT_EQ(out_.find("\nJSON fields:\n  ") == std::string::npos, receipt)
        << out_;
  }
}

TEST_F(HelpText, FieldsOfPlansAreThere) {
  expect_each("plan",
              {{"--mask", "causal & documents", "--q-len", "512", "--docs",
                "lengths:300,212", "--target", "v6e", "--lists"},
               with_picks({})});
  expect_each("check", {with_causal({"--q-len", "64", "--tile", "32"})},
              {"first_wrong"});
  expect_each("show", {with_causal({"--q-len", "64"}),
                       with_picks({"-o", file("a.svg")})});
  expect_each("export", {with_causal({"--q-len", "64", "--layout", "lists",
                                      "-o", file("lists.safetensors")}),
                         with_causal({"--q-len", "512", "--layout", "mosaic",
                                      "-o", file("steps.safetensors")})});
  expect_each("explain",
              {with_causal({"--q-len", "64", "--query", "3", "--key", "5"}),
               with_causal({"--q-len", "64", "--valid", "tokens:2", "--query",
                            "3", "--key", "2"}),
               with_causal({"--q-len", "64", "--memory"}),
               with_picks({"--query", "3"})});
  expect_each("route", {{"--mask",        "causal & routed(top=3, block=16)",
                         "--q-len",       "256",
                         "--heads",       "4",
                         "--kv-heads",    "2",
                         "--head-dim",    "16",
                         "--tile",        "32x16",
                         "--compression", "8",
                         "--stride",      "8",
                         "--kv-tile",     "64",
                         "--query-tile",  "32",
                         "--max-union",   "16",
                         "--recall",      "--hierarchical"}});
}

TEST_F(HelpText, FieldsOfDevicesAreThere) {
  const Arguments tasks = {"--mesh", "seq=2", "--balance", "tasks"};
  const auto on_mesh = [&](Arguments more) {
    more.insert(more.end(), tasks.begin(), tasks.end());
    return with_causal(more);
  };
  expect_each("shard",
              {on_mesh({"--q-len", "2048", "--fit", "v6e"}),
               on_mesh({"--q-len", "2048", "--tile", "64", "--emit",
                        file("sharded.mlir")})},
              {"program.calibrated", "program.collectives."});
  expect_each("audit", {{file("sharded.mlir")}});
  expect_each("fit",
              {with_causal({"--q-len", "1024", "--backward"}),
               with_causal({"--q-len", "1024", "--backward", "--lane", "mosaic",
                            "--sink-telemetry"}),
               with_causal({"--q-len", "1048576", "--heads", "64", "--backward",
                            "--target", "v5e"})},
              {"forward.compiled.", "backward.compiled.", "sinks.compiled.",
               "sinks.scratch"});
  expect_each(
      "compile",
      {with_causal({"--q-len", "1024", "--target", "v6e:1x1", "--no-compile",
                    "--emit", file("kernel.mlir")})},
      {"target", "platform", "devices.", "plugin", "name", "fingerprint",
       "outputs", "bytes.", "cost.", "compile_ms", "out"});
  std::ofstream(file("machine.json"))
      << R"({"cpu": "x", "threads": 8, "isas": ["portable"], "plugins": []})";
  expect_each(
      "choose",
      {with_causal({"--q-len", "64", "--machine", file("machine.json")})},
      {"gate."});
}

TEST_F(HelpText, FieldsOfFilesAreThere) {
  std::ofstream(file("documents.jsonl")) << R"({"input_ids": [1, 2, 3]})"
                                         << "\n";
  expect_each("pack", {{file("documents.jsonl"), "--tokens", "64"}});
  expect_each("tree", {{file("documents.jsonl")}});
  for (const char* tokens : {"48", "64"}) {
    program({"run", "--mask", "causal", "--q-len", tokens, "--tile", "16",
             "--heads", "1", "--head-dim", "16", "--receipt", file(tokens)});
    ASSERT_EQ(code_, kOk) << err_;
  }
  expect_each("receipt",
              {{"verify", file("48")}, {"diff", file("48"), file("64")}},
              {"wrong."});
  const fs::path golden = "tests/golden/schedule";
  fs::create_directories(file("dump"));
  for (const auto& [from, to] :
       {std::pair("triangle-bundles.txt", "71-final_bundles.txt"),
        std::pair("triangle-slots.txt",
                  "69-final_hlo-static-per-bundle-utilization.txt"),
        std::pair("triangle-packed.txt", "64-packed-bundles-post-ra.txt")}) {
    fs::copy_file(golden / from, file("dump") + "/17-triangle.1-" + to);
  }
  expect_each("schedule",
              {with_causal({"--dump", file("dump"), "--q-len", "64", "--kv-len",
                            "512"})},
              {"own."});
}

}  // namespace
}  // namespace tessera::cli
