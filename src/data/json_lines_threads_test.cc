// JSON lines with any number of workers: documents, errors and positions equal
// those with one worker.
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "base/files.h"
#include "tessera/documents.h"
#include "tests/temp_folder.h"

namespace tessera::data {
namespace {

using Random = std::mt19937_64;

constexpr size_t kMaxLineBytes = size_t{1} << 20;  // of a line

std::string numbers(Random& random, size_t count, uint64_t below) {
  std::vector<uint64_t> drawn(count);
  for (uint64_t& number : drawn) number = random() % below;
  return fmt::format("[{}]", fmt::join(drawn, ","));
}

// Documents have some of the columns, and some unknown fields. One file has
// more than the 64 unknown fields that are reported.
std::string draw_document(Random& random, size_t tokens) {
  std::string line =
      fmt::format("{{\"input_ids\": {}", numbers(random, tokens, 100'000));
  for (const char* const name : {"loss_mask", "structure_ids", "dep_levels",
                                 "ast_depth", "sibling_index", "node_type"}) {
    const uint64_t kind = random() % 6;
    if (kind > 1) continue;
    line += fmt::format(", \"{}\": {}", name,
                        kind == 0 ? "null" : numbers(random, tokens, 2));
  }
  if (tokens >= 8 && random() % 2 == 0) {
    line +=
        ", \"chunk_starts\": [0, 4], \"chunk_ends\": [4, 8], \"chunk_kinds\": "
        "[1, 2], \"call_edges\": [[1, 0]], \"type_edges\": [[0, 1], [1, 1]]";
  }
  const uint64_t first = random() % 100;
  const uint64_t fields = random() % 16 == 0 ? 70 : random() % 3;
  for (uint64_t f = first; f < first + fields; ++f) {
    line += fmt::format(", \"other{}\": {}", f, f);
  }
  return line + "}";
}

std::string bad_line(Random& random) {
  switch (random() % 7) {
    case 0:
      return "{\"input_ids\": [1, 2";
    case 1:
      return "[]";
    case 2:
      return "{\"input_ids\": [1, -1]}";
    case 3:
      return "{\"input_ids\": [1], \"\xff\": 1}";
    case 4:
      return "{\"input_ids\": [1, 2], \"ast_depth\": [1]}";
    case 5:
      return std::string(kMaxLineBytes + 1, ' ');
    default:
      return std::string("{\"input_ids\": [1]}") + '\0' + "2";
  }
}

// Every sixth line has `tokens` tokens or more; the others are short or blank.
// Files of odd seeds have a bad line, and perhaps more after it.
std::string draw_file(uint64_t seed, size_t lines, size_t tokens) {
  Random random(seed);
  const size_t bad = seed % 2 == 1 ? random() % lines : lines;
  std::string text;
  for (size_t l = 0; l < lines; ++l) {
    if (l == bad || (l > bad && random() % 8 == 0)) {
      text += bad_line(random);
    } else if (l % 6 == 0) {
      text += draw_document(random, tokens + random() % tokens);
    } else if (random() % 8 == 0) {
      text += random() % 2 == 0 ? "" : " \t";
    } else {
      text += draw_document(random, random() % 50);
    }
    text += random() % 4 == 0 ? "\r\n" : "\n";
  }
  if (seed % 3 == 0) text.pop_back();
  return text;
}

std::unique_ptr<DocumentSource> open_lines(
    const std::vector<std::string>& files, int64_t workers,
    const SourcePosition& from = {}) {
  auto source = open_json_lines(files, {.max_line_bytes = kMaxLineBytes});
  EXPECT_TRUE(source) << source.error().message;
  (*source)->set_workers(workers);
  EXPECT_TRUE((*source)->seek(from));
  return std::move(*source);
}

// All that a source returns, and its state before each document and at the end.
struct Read {
  std::vector<Documents> windows;  // of three documents each
  std::vector<SourcePosition> positions;
  std::vector<std::set<std::string>> ignored;
  std::string error;
};

Read read_all(const std::vector<std::string>& files, int64_t workers,
              const SourcePosition& from = {}) {
  const auto source = open_lines(files, workers, from);
  Read out;
  Documents window;
  while (true) {
    out.positions.push_back(source->position());
    out.ignored.push_back(source->ignored());
    const auto more = source->read(window);
    if (!more) {  // what is left of the window is unspecified
      out.error = more.error().message;
      return out;
    }
    if (!*more || window.size() == 3) {
      out.windows.push_back(std::exchange(window, Documents()));
    }
    if (!*more) {
      out.positions.push_back(source->position());
      return out;
    }
  }
}

auto columns(const Documents& d) {
  return std::tie(d.token_start, d.input_ids, d.loss_mask, d.structure,
                  d.chunk_start, d.chunk_starts, d.chunk_ends, d.chunk_kinds,
                  d.edge_start, d.edges);
}

void expect_same(const Read& got, const Read& want) {
  EXPECT_EQ(got.error, want.error);
  EXPECT_TRUE(got.positions == want.positions);
  EXPECT_EQ(got.ignored, want.ignored);
  ASSERT_EQ(got.windows.size(), want.windows.size());
  for (size_t w = 0; w < got.windows.size(); ++w) {
    EXPECT_TRUE(columns(got.windows[w]) == columns(want.windows[w])) << w;
  }
}

class JsonLines : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) {
    EXPECT_TRUE(write_file(folder_.file(name), text));
    return folder_.file(name);
  }
  testing::TempFolder folder_;
};

TEST_F(JsonLines, AreTheSameForAnyNumberOfWorkers) {
  const std::string good = write("good.jsonl", draw_file(2, 12, 10));
  for (uint64_t seed = 0; seed < 12; ++seed) {
    SCOPED_TRACE(seed);
    const std::vector<std::string> files = {
        good, write("a.jsonl", draw_file(seed, 40, 5'000)), good};
    const Read want = read_all(files, 1);
    EXPECT_EQ(want.error.empty(), seed % 2 == 0) << want.error;
    for (const int64_t workers : {2, 3, 7}) {
      SCOPED_TRACE(workers);
      expect_same(read_all(files, workers), want);
    }
  }
}

TEST_F(JsonLines, ResumedAtAnyOfThemTheyAreTheSame) {
  for (uint64_t seed = 0; seed < 4; ++seed) {
    SCOPED_TRACE(seed);
    const std::vector<std::string> files = {
        write("a.jsonl", draw_file(seed, 24, 3'000))};
    const Read whole = read_all(files, 1);
    for (size_t at = 0; at < whole.positions.size(); ++at) {
      SCOPED_TRACE(at);
      const SourcePosition& from = whole.positions[at];
      const Read want = read_all(files, 1, from);
      constexpr int64_t kWorkers[] = {2, 3, 7};
      expect_same(read_all(files, kWorkers[at % 3], from), want);
      EXPECT_EQ(want.error, whole.error);
    }
  }
}

// More lines than one read-ahead takes, however short they are.
TEST_F(JsonLines, WhatIsReadAheadComesInItsOrder) {
  constexpr int32_t kLines = 40'000;
  std::string text;
  std::vector<SourcePosition> ends;
  for (int32_t d = 0; d < kLines; ++d) {
    text += fmt::format("{{\"input_ids\": [{}]}}\n", d);
    ends.push_back({0, static_cast<int64_t>(text.size()), d + 1});
  }
  const std::vector<std::string> files = {write("a.jsonl", text + "[]\n")};
  const auto expect_some = [&](DocumentSource& source, int32_t first,
                               int32_t end) {
    for (int32_t d = first; d < end; ++d) {
      Documents one;
      const auto more = source.read(one);
      ASSERT_TRUE(more) << more.error().message;
      ASSERT_TRUE(*more);
      EXPECT_EQ(one.input_ids, std::vector<int32_t>{d});
      EXPECT_TRUE(source.position() == ends[static_cast<size_t>(d)]) << d;
    }
  };
  const auto expect_rest = [&](DocumentSource& source, int32_t first) {
    expect_some(source, first, kLines);
    Documents one;
    const auto more = source.read(one);
    ASSERT_FALSE(more);
    EXPECT_EQ(more.error().message,
              fmt::format("[data] a line must be an object, found an array of "
                          "0 for line {} of '{}'",
                          kLines + 1, files[0]));
  };
  const auto source = open_lines(files, 2);
  expect_some(*source, 0, 10);
  ASSERT_TRUE(source->seek(ends[3]));
  expect_rest(*source, 4);
  // Documents read ahead come first; after them lines are parsed one at a time.
  ASSERT_TRUE(source->seek({}));
  expect_some(*source, 0, 5);
  source->set_workers(1);
  expect_rest(*source, 5);
}

TEST_F(JsonLines, AFileThatIsNotThereTellsAfterThoseBeforeIt) {
  const std::string good = write("good.jsonl", draw_file(2, 12, 4'000));
  const Read want = read_all({good, folder_.file("none.jsonl")}, 1);
  EXPECT_EQ(want.error, fmt::format("[data] a file must be readable, found 'No "
                                    "such file or directory' for '{}'",
                                    folder_.file("none.jsonl")));
  EXPECT_GT(want.positions.size(), 4U);
  expect_same(read_all({good, folder_.file("none.jsonl")}, 3), want);
}

TEST_F(JsonLines, RowsPositionsAndReportsAreTheSame) {
  StreamOptions options;
  options.pack.tokens = 64;
  options.pack.window_rows = 4;
  options.pack.tile = {8, 8};
  const std::vector<std::string> files = {
      write("a.jsonl", draw_file(4, 40, 3'000)),
      write("b.jsonl", draw_file(6, 40, 3'000))};
  const auto stream_of = [&](int64_t workers) {
    auto source = open_documents(files);
    EXPECT_TRUE(source) << source.error().message;
    (*source)->set_workers(workers);
    auto stream = RowStream::open(std::move(*source), options);
    EXPECT_TRUE(stream) << stream.error().message;
    return std::move(*stream);
  };
  RowStream one = stream_of(1), several = stream_of(3);
  int64_t rows = 0;
  while (true) {
    const auto want = one.next(5), got = several.next(5);
    ASSERT_TRUE(want) << want.error().message;
    ASSERT_TRUE(got) << got.error().message;
    ASSERT_EQ(*got, *want);
    ASSERT_EQ(several.position(), one.position());
    ASSERT_EQ(several.report(), one.report());
    if (want->rows == 0) break;
    rows += want->rows;
  }
  EXPECT_GT(rows, 100);
  EXPECT_FALSE(one.report().ignored.empty());
}

TEST_F(JsonLines, StoppedAnywhereTheyEndCleanly) {
  const std::string path = write("a.jsonl", draw_file(2, 40, 6'000));
  for (const int documents : {0, 1, 9}) {
    const auto source = open_lines({path}, 4);
    Documents some;
    for (int d = 0; d < documents; ++d) ASSERT_TRUE(*source->read(some));
  }
  LoaderOptions options;
  options.stream.pack.tokens = 64;
  options.stream.pack.window_rows = 4;
  options.stream.pack.tile = options.tile = {16, 16};
  options.workers = 3;
  for (int batches = 0; batches < 3; ++batches) {
    auto loader = Loader::open(open_lines({path}, 1), options);
    ASSERT_TRUE(loader) << loader.error().message;
    for (int b = 0; b < batches; ++b) ASSERT_TRUE(*loader->next());
  }
}

}  // namespace
}  // namespace tessera::data
