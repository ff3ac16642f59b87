// tests/pack_folder.h: makes documents, and packs them into a folder.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "base/files.h"
#include "data/row_files.h"
#include "tessera/documents.h"
#include "tests/temp_folder.h"

namespace tessera::testing {

class PackFolder : public ::testing::Test {
 public:
  using Files = std::map<std::string, std::string>;

 protected:
  void SetUp() override {
    write("a.jsonl", 70, 1);
    write("b.jsonl", 50, 2);
    options_.stream.pack.tokens = 64;
    options_.stream.pack.window_rows = 5;
    options_.stream.pack.rows_per_step = 3;
    options_.stream.pack.tile = {16, 16};
    options_.stream.max_chunks = 9;
    options_.rows_per_file = 7;
  }

  // Documents of 0 to 99 tokens with chunks and edges, some of them long.
  void write(const std::string& name, int documents, uint64_t seed) {
    std::mt19937_64 random(seed);
    std::string text;
    for (int d = 0; d < documents; ++d) {
      std::vector<int> ids(random() % 100), starts, ends;
      for (int& id : ids) id = static_cast<int>(random() % 1000);
      std::vector<std::string> edges;
      for (int at = 0; at + 6 <= std::ssize(ids); at += 6) {
        starts.push_back(at);
        ends.push_back(at + 6);
        if (at > 0) edges.push_back(fmt::format("[{}, 0]", at / 6));
      }
      text += fmt::format(
          "{{\"input_ids\": [{}], \"{}\": 1, \"chunk_starts\": [{}], "
          "\"chunk_ends\": [{}], \"call_edges\": [{}]}}\n",
          fmt::join(ids, ","), d < 20 ? "early" : "name",
          fmt::join(starts, ","), fmt::join(ends, ","), fmt::join(edges, ","));
    }
    ASSERT_TRUE(write_file(folder_.file(name), text));
  }

  std::vector<std::string> inputs() const {
    return {folder_.file("a.jsonl"), folder_.file("b.jsonl")};
  }
  std::string out(const std::string& name = "out") const {
    return folder_.file(name);
  }
  Result<PackedFolder> pack(const std::string& name = "out") const {
    return pack_row_folder(inputs(), out(name), options_);
  }
  // A run that ends when it has these files, as in a crash.
  Result<PackedFolder> pack_files(int64_t files,
                                  ErrorKind kind = ErrorKind::io) const {
    RowFolderOptions stopped = options_;
    stopped.each = [left = files, kind](const Rows&) mutable -> Result<void> {
      if (left-- > 0) return {};
      return Error{kind, "[test] it must stop, found a stop"};
    };
    return pack_row_folder(inputs(), out(), stopped);
  }
  std::string aside(const std::string& name) const {
    return out() + "/" + std::string(data::kUnfinished) + "/" + name;
  }

  static Files files_of(const std::string& path) {
    Files files;
    for (const auto& entry : std::filesystem::directory_iterator(path)) {
      files[entry.path().filename().string()] =
          entry.is_directory() ? "" : *read_file(entry.path(), 1 << 28);
    }
    return files;
  }
  // Checks that the folder is as if one run had made it.
  void expect_same(const PackedFolder& found, const PackedFolder& whole) {
    EXPECT_EQ(files_of(out()), files_of(out("whole")));
    EXPECT_EQ(found.files, whole.files);
    EXPECT_EQ(found.report, whole.report);
  }
  void refuses(const std::string& why) {
    const Files before = files_of(out());
    const Files left = files_of(out() + "/.unfinished");
    const auto packed = pack();
    ASSERT_FALSE(packed);
    EXPECT_TRUE(packed.error().message.starts_with(
        "[data] a folder that a run began must be resumed with the same "
        "inputs, options and version, or restarted, found "))
        << packed.error().message;
    EXPECT_NE(packed.error().message.find(why), std::string::npos)
        << packed.error().message;
    EXPECT_EQ(files_of(out()), before);
    EXPECT_EQ(files_of(out() + "/.unfinished"), left);
  }

  TempFolder folder_;
  RowFolderOptions options_;
};

}  // namespace tessera::testing
