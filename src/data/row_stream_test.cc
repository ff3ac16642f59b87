// JSON lines to rows: every token with its columns, streams resumed anywhere,
// and inputs that are refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <utility>

#include "base/fail.h"
#include "base/files.h"
#include "tessera/documents.h"
#include "tests/random_case.h"
#include "tests/temp_folder.h"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;
using enum RowColumn;

// Token i of document d is 1000 d + i + 1, which tells a token's source.
constexpr int32_t kStride = 1000;

// The columns of tokens, by name in a document and by column in a row.
constexpr std::pair<const char*, RowColumn> kOfTokens[] = {
    {"loss_mask", loss_mask},         {"structure_ids", structure_ids},
    {"dep_levels", dep_levels},       {"ast_depth", ast_depth},
    {"sibling_index", sibling_index}, {"node_type", node_type}};

struct WrittenDocument {
  int32_t length = 0;
  std::map<RowColumn, std::vector<int32_t>> columns;  // that it has
};

struct Written {
  std::vector<WrittenDocument> documents;
  std::string text;
  int64_t edges = 0;
};

// Documents of 0 to 90 tokens, each with a random choice of the columns. Chunk
// c is tokens [5 c, 5 c + 5), of kind d + c; an edge joins each to the last.
Written write_documents(size_t n, uint64_t seed) {
  std::mt19937_64 random(seed);
  Written w;
  for (size_t d = 0; d < n; ++d) {
    const auto length =
        static_cast<int32_t>(random() % 7 == 0 ? 0 : random() % 90);
    WrittenDocument& document = w.documents.emplace_back();
    document.length = length;
    std::vector<int32_t> ids, starts, ends, kinds;
    std::string edges;
    for (int32_t i = 0; i < length; ++i) {
      ids.push_back(static_cast<int32_t>(d) * kStride + i + 1);
    }
    for (int32_t c = 0; 5 * c + 5 <= length; ++c) {
      starts.push_back(5 * c);
      ends.push_back(5 * c + 5);
      kinds.push_back(static_cast<int32_t>(d) + c);
      if (c > 0) {
        edges += fmt::format("{}[{},{}]", c > 1 ? "," : "", c, c - 1);
        ++w.edges;
      }
    }
    w.text += fmt::format("{{\"input_ids\": [{}], \"name\": \"x\"",
                          fmt::join(ids, ","));
    for (const auto& [name, column] : kOfTokens) {
      if (random() % 2 == 0) continue;
      std::vector<int32_t>& values = document.columns[column];
      for (int32_t i = 0; i < length; ++i) {
        values.push_back(column == loss_mask
                             ? static_cast<int32_t>(random() % 2)
                             : static_cast<int32_t>(random()));
      }
      w.text += fmt::format(", \"{}\": [{}]", name, fmt::join(values, ","));
    }
    if (!starts.empty()) {
      w.text += fmt::format(
          ", \"chunk_starts\": [{}], \"chunk_ends\": [{}], \"chunk_kinds\": "
          "[{}], \"call_edges\": [{}]",
          fmt::join(starts, ","), fmt::join(ends, ","), fmt::join(kinds, ","),
          edges);
    }
    w.text += d % 5 == 0 ? "}\n\n" : "}\n";
  }
  return w;
}

RowStream stream_of(const std::string& path, const StreamOptions& options,
                    const StreamPosition& from = {}) {
  auto source = open_json_lines({path});
  auto stream = RowStream::open(std::move(*source), options, from);
  EXPECT_TRUE(stream) << stream.error().message;
  return std::move(*stream);
}

// The number of token i; `absent` if its document lacks the column.
int32_t written(const WrittenDocument& document, RowColumn column, int32_t i,
                int32_t absent) {
  const auto found = document.columns.find(column);
  if (found == document.columns.end()) return absent;
  return found->second.at(static_cast<size_t>(i));
}

// Compares each token of a row with the documents that were written.
void check_row(const Rows& rows, int64_t r, const Written& w,
               std::map<int32_t, int>& seen) {
  const auto at = [&](RowColumn c, int64_t t) {
    return rows.row(c, r)[static_cast<size_t>(t)];
  };
  for (int64_t t = 0; t < at(valid_token_count, 0); ++t) {
    const int32_t id = at(input_ids, t) - 1;
    const auto d = static_cast<size_t>(id / kStride);
    const int32_t i = id % kStride;
    const WrittenDocument& document = w.documents.at(d);
    ASSERT_LT(i, document.length);
    ++seen[id];
    EXPECT_EQ(at(positions, t), i);
    const bool last = i + 1 == document.length;
    EXPECT_EQ(at(target_ids, t), last ? rows.pad_id : id + 2);
    for (const auto& [name, column] : kOfTokens) {
      // The loss mask is that of the target, the next token.
      const int32_t want = column != loss_mask ? written(document, column, i, 0)
                           : last              ? 0
                                  : written(document, column, i + 1, 1);
      EXPECT_EQ(at(column, t), want) << name << " of token " << i;
    }
    if (t > 0) {
      const bool same = (at(input_ids, t - 1) - 1) / kStride == id / kStride;
      EXPECT_EQ(at(doc_ids, t) == at(doc_ids, t - 1), same);
    }
  }
  for (int64_t c = 0; c < at(num_chunks, 0); ++c) {
    const int32_t start = at(chunk_starts, c);
    const int32_t id = at(input_ids, start) - 1;
    EXPECT_EQ(id % kStride % 5, 0);
    EXPECT_EQ(at(chunk_kinds, c), id / kStride + id % kStride / 5);
    const int32_t n = at(chunk_ends, c) - start;
    const int32_t end = at(chunk_ends, c);  // of the part, if the chunk is cut
    EXPECT_TRUE(n == 5 || end == at(valid_token_count, 0) ||
                at(doc_ids, end) != at(doc_ids, start));
  }
  for (int64_t e = 0; e < at(num_call_edges, 0); ++e) {
    const int32_t from = at(chunk_starts, at(call_edges, 2 * e));
    const int32_t to = at(chunk_starts, at(call_edges, 2 * e + 1));
    EXPECT_EQ(at(input_ids, from), at(input_ids, to) + 5);
  }
}

StreamOptions options_of(uint64_t seed) {
  StreamOptions o;
  o.pack.tokens = 16 + static_cast<int64_t>(seed * 7 % 40);
  o.pack.tile = {8, 8};
  o.pack.window_rows = 2 + static_cast<int64_t>(seed % 9);
  o.pack.rows_per_step = 3;
  o.pack.strategy = static_cast<PackStrategy>(seed % 4);
  o.pad_id = 7;
  return o;
}

TEST(RowStreams, EveryTokenComesWithWhatBelongsToIt) {
  const testing::TempFolder folder;
  const std::string path = folder.file("a.jsonl");
  for (uint64_t seed = 1; seed <= 24; ++seed) {
    const Written w = write_documents(120, seed);
    ASSERT_TRUE(write_file(path, w.text));
    RowStream stream = stream_of(path, options_of(seed));
    std::map<int32_t, int> seen;
    int64_t rows = 0;
    while (true) {
      const auto some = stream.next(5);
      ASSERT_TRUE(some) << some.error().message;
      if (some->rows == 0) break;
      const auto good = check_rows(*some, "stream");
      ASSERT_TRUE(good) << good.error().message;
      for (int64_t r = 0; r < some->rows; ++r) check_row(*some, r, w, seen);
      rows += some->rows;
    }
    int64_t tokens = 0;
    for (const WrittenDocument& d : w.documents) tokens += d.length;
    EXPECT_EQ(static_cast<int64_t>(seen.size()), tokens);
    for (const auto& [id, times] : seen) EXPECT_EQ(times, 1) << id;
    const StreamReport report = stream.report();
    const PackAccount& account = report.account;
    EXPECT_EQ(account.tokens_out, tokens);
    EXPECT_EQ(account.rows, rows);
    EXPECT_TRUE(account.sums(stream.shape().tokens));
    const ChunkAccount& chunks = report.chunks;
    EXPECT_EQ(chunks.chunks_in, chunks.chunks_out + chunks.chunks_over);
    EXPECT_EQ(chunks.edges_in, w.edges);
    EXPECT_GT(chunks.edges_out, 0);
    EXPECT_GE(chunks.edges_dropped(), 0);
    EXPECT_EQ(report.ignored, (std::set<std::string>{"name"}));
  }
}

TEST(RowStreams, ResumedAnywhereItGivesTheSameRows) {
  const testing::TempFolder folder;
  const std::string path = folder.file("a.jsonl");
  ASSERT_TRUE(write_file(path, write_documents(80, 5).text));
  for (uint64_t seed = 1; seed <= 4; ++seed) {
    const StreamOptions options = options_of(seed);
    RowStream whole = stream_of(path, options);
    std::vector<Rows> rows;
    std::vector<StreamPosition> positions;
    do {
      positions.push_back(whole.position());
      rows.push_back(*whole.next(3));
    } while (rows.back().rows > 0);
    ASSERT_GT(rows.size(), 8u);
    for (size_t at = 0; at < positions.size(); ++at) {
      RowStream again = stream_of(path, options, positions[at]);
      for (size_t r = at; r < rows.size(); ++r) {
        ASSERT_EQ(*again.next(3), rows[r]) << seed << " " << at << " " << r;
      }
      EXPECT_EQ(again.report(), whole.report()) << seed << " " << at;
      EXPECT_EQ(again.position(), whole.position());
    }
  }
}

TEST(RowStreams, APositionIsOfTheSameStream) {
  const testing::TempFolder folder;
  const std::string path = folder.file("a.jsonl");
  ASSERT_TRUE(write_file(path, write_documents(80, 5).text));
  const StreamOptions options = options_of(3);
  ASSERT_EQ(options.pack.strategy, PackStrategy::by_cost);
  RowStream stream = stream_of(path, options);
  ASSERT_TRUE(stream.next(5));
  const StreamPosition good = stream.position();
  const auto refusal = [&](const StreamOptions& asked,
                           const StreamPosition& from) {
    auto source = open_json_lines({path});
    const auto opened = RowStream::open(std::move(*source), asked, from);
    return opened ? "" : opened.error().message;
  };
  EXPECT_EQ(refusal(options, good), "");
  // Opening at the beginning reads nothing, so next() reports errors there.
  const std::string wrong = folder.file("wrong.jsonl");
  ASSERT_TRUE(write_file(wrong, "11\n"));
  const StreamPosition begin = stream_of(wrong, options).position();
  EXPECT_FALSE(stream_of(wrong, options, begin).next(1));
  std::vector<StreamOptions> others(9, options);
  others[0].pack.tokens = 99;
  others[1].pack.strategy = PackStrategy::best_fit;
  others[2].pack.long_documents = LongDocuments::drop;
  others[3].pack.window_rows += 1;
  others[4].pack.rows_per_step += 1;
  others[5].pack.mixing = 0.5;
  others[6].pack.seed = 9;
  others[7].pack.mask = *parse_mask("documents");
  others[8].max_chunks = 5;
  for (const StreamOptions& other : others) {
    EXPECT_TRUE(refusal(other, good)
                    .starts_with("[data] a position must be of a stream of the "
                                 "same options, found the digest "))
        << refusal(other, good);
  }
  const std::string more = folder.file("more.jsonl");
  ASSERT_TRUE(write_file(more, write_documents(8, 6).text));
  // Positions of other files: one more, one less, another name, one that grew.
  const auto of_files = [&](const std::vector<std::string>& files) {
    auto source = open_documents(files);
    const auto opened = RowStream::open(std::move(*source), options, good);
    return opened ? "" : opened.error().message;
  };
  EXPECT_EQ(of_files({path}), "");
  fs::create_directory(folder.file("elsewhere"));
  const std::string moved = folder.file("elsewhere/a.jsonl");
  fs::copy_file(path, moved);
  EXPECT_EQ(of_files({moved}), "");
  const std::string renamed = folder.file("elsewhere/b.jsonl");
  fs::copy_file(path, renamed);
  for (const std::vector<std::string>& files :
       {std::vector{path, more}, std::vector{more, path}, std::vector{more},
        std::vector{renamed}}) {
    EXPECT_TRUE(of_files(files).starts_with(
        "[data] a position must be of the same inputs (files by name, size and "
        "order), found the digest "))
        << of_files(files);
  }
  ASSERT_TRUE(write_file(moved, *read_file(path, 1 << 20) + "{}\n"));
  EXPECT_NE(of_files({moved}), "");
  const auto forged = [&](auto change) {
    StreamPosition at = good;
    change(at);
    return refusal(options, at);
  };
  const std::string step = "[data] a position must be within a step of 3 rows";
  for (const std::string& text :
       {forged([](auto& at) { at.state.open_rows = 3; }),
        forged([](auto& at) { at.state.open_rows = -1; }),
        forged([](auto& at) { at.state.window = -1; }),
        forged([](auto& at) { at.state.window = INT64_MAX; }),
        forged([](auto& at) { at.state.open_cost = NAN; }),
        forged([](auto& at) { at.state.open_cost = -1; })}) {
    EXPECT_TRUE(text.starts_with(step)) << text;
  }
  for (const int64_t offset : {int64_t{3}, int64_t{1} << 40}) {
    const std::string text = forged([&](auto& at) {
      at.source = {0, offset, 0};
    });
    EXPECT_TRUE(
        text.starts_with("[data] a position must be the beginning of a "
                         "line, found byte "))
        << text;
  }
  for (const int64_t line : {int64_t{-1}, INT64_MAX, INT64_MIN}) {
    EXPECT_EQ(forged([&](auto& at) {
                at.source = {0, 9, line};
              }),
              fmt::format("[data] a position must have passed 0 to 9 lines in "
                          "9 bytes, found {}",
                          line));
  }
  for (const int64_t file : {int64_t{-1}, int64_t{2}, INT64_MAX}) {
    EXPECT_NE(forged([&](auto& at) { at.source.file = file; }), "");
  }
  EXPECT_NE(forged([](auto& at) { at.source = {0, INT64_MAX, 0}; }), "");
  EXPECT_NE(forged([](auto& at) { at.rows = INT64_MAX; }), "");
  const std::string counts = "[data] a position must have counts of 0 to ";
  for (const std::string& text :
       {forged([](auto& at) { at.counted.account.tokens_in = INT64_MAX; }),
        forged([](auto& at) { at.counted.chunks.edges_out = -1; }),
        forged([](auto& at) { at.counted.balance.ratios = NAN; }),
        forged([](auto& at) { at.counted.balance.squares = INFINITY; })}) {
    EXPECT_TRUE(text.starts_with(counts)) << text;
  }
  // Counts that do not match these documents are reported after the last row.
  StreamPosition more_chunks = good;
  ++more_chunks.counted.chunks.chunks_in;
  RowStream sums = stream_of(path, options, more_chunks);
  const auto rest = sums.next(1 << 10);
  ASSERT_FALSE(rest);
  EXPECT_EQ(rest.error().message,
            "[data] chunks and edges in must be those out and dropped, found 1 "
            "and 0 more");
}

// Documents in memory; counts how many were read.
class Listed : public DocumentSource {
 public:
  using Add = std::function<void(int64_t, Documents&)>;
  Listed(int64_t documents, Add add, int64_t* read)
      : documents_(documents), add_(std::move(add)), read_(read) {}

  Result<bool> read(Documents& into) override {
    if (*read_ == documents_) return false;
    add_((*read_)++, into);
    into.close_document();
    return true;
  }
  SourcePosition position() const override { return {0, *read_, 0}; }
  Result<void> seek(const SourcePosition& position) override {
    *read_ = position.offset;
    return {};
  }

 private:
  const int64_t documents_;
  const Add add_;
  int64_t* const read_;
};

TEST(RowStreams, AWindowHoldsFewChunksAndEdges) {
  // Documents have 1 token and 40 chunks or edges; a window has 4 x 8 tokens.
  const auto add = [](int64_t d, Documents& into) {
    into.input_ids.push_back(1);
    const int chunks = d % 3 == 0 ? 40 : 1;
    for (int c = 0; c < chunks; ++c) {
      into.chunk_starts.push_back(0);
      into.chunk_ends.push_back(1);
      into.chunk_kinds.push_back(c);
    }
    if (d % 3 == 0) return;
    into.edges[static_cast<size_t>(d % 3 - 1)].resize(80, 0);
  };
  StreamOptions options = options_of(2);
  options.pack.tokens = 8;
  options.pack.window_rows = 4;
  int64_t read = 0;
  auto stream =
      RowStream::open(std::make_unique<Listed>(9, add, &read), options);
  for (int64_t d = 1; d <= 9; ++d) {
    ASSERT_EQ(stream->next(1)->rows, 1);
    EXPECT_EQ(read, d);
  }
  EXPECT_EQ(stream->next(1)->rows, 0);
  EXPECT_EQ(stream->report().chunks.chunks_in, 3 * 40 + 6);
  EXPECT_EQ(stream->report().chunks.edges_in, 6 * 40);
}

// The parts in a row; token i of document d is kStride d + i + 1.
std::vector<DocumentPart> parts_in(const Rows& rows, int64_t r) {
  std::vector<DocumentPart> parts;
  for (int32_t t = 0; t < rows.row(valid_token_count, r)[0]; ++t) {
    const auto at = static_cast<size_t>(t);
    if (rows.row(doc_ids, r)[at] == static_cast<int32_t>(parts.size())) {
      const int32_t id = rows.row(input_ids, r)[at] - 1;
      parts.push_back({id / kStride, id % kStride, 0});
    }
    ++parts.back().length;
  }
  return parts;
}

struct Structure {
  std::vector<int32_t> starts, ends, kinds, from, to;
  ChunkAccount account;
  bool operator==(const Structure&) const = default;
};

// Slow: each part looks at all chunks and edges of its document.
void add_part(const Documents& all, const DocumentPart& part, int32_t begin,
              const RowShape& shape, size_t kind, Structure& out) {
  const auto d = static_cast<size_t>(part.document);
  const int32_t end = part.offset + part.length;
  std::map<int32_t, int32_t> numbers;  // of chunks in the part; -1: no room
  for (int64_t c = all.chunk_start[d]; c < all.chunk_start[d + 1]; ++c) {
    const auto i = static_cast<size_t>(c);
    if (all.chunk_starts[i] < part.offset || all.chunk_starts[i] >= end)
      continue;
    int32_t& number = numbers[static_cast<int32_t>(c - all.chunk_start[d])];
    number = -1;
    if (std::ssize(out.starts) == shape.max_chunks) {
      ++out.account.chunks_over;
      continue;
    }
    number = static_cast<int32_t>(out.starts.size());
    ++out.account.chunks_out;
    if (all.chunk_ends[i] > end) ++out.account.chunks_cut;
    out.starts.push_back(begin + all.chunk_starts[i] - part.offset);
    out.ends.push_back(begin + std::min(all.chunk_ends[i], end) - part.offset);
    out.kinds.push_back(all.chunk_kinds[i]);
  }
  for (int64_t e = all.edge_start[kind][d]; e < all.edge_start[kind][d + 1];
       ++e) {
    const int32_t* const ends = all.edges[kind].data() + 2 * e;
    if (!numbers.contains(ends[0]) || !numbers.contains(ends[1])) continue;
    if (std::ssize(out.from) == shape.max_edges || numbers[ends[0]] < 0 ||
        numbers[ends[1]] < 0) {
      ++out.account.edges_over;
      continue;
    }
    ++out.account.edges_out;
    out.from.push_back(numbers[ends[0]]);
    out.to.push_back(numbers[ends[1]]);
  }
}

// Chunks and edges in any order, in documents that are cut into many parts.
Documents tangled(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](int32_t n) {
    return static_cast<int32_t>(random() % static_cast<uint64_t>(n));
  };
  Documents all;
  for (int32_t d = 0; d < 30; ++d) {
    const int32_t length = 1 + below(below(3) == 0 ? 400 : 20);
    for (int32_t i = 0; i < length; ++i) {
      all.input_ids.push_back(d * kStride + i + 1);
    }
    const int32_t chunks = below(2) == 0 ? 0 : 1 + below(length);
    for (int32_t c = 0; c < chunks; ++c) {
      const int32_t start = below(length);
      all.chunk_starts.push_back(start);
      all.chunk_ends.push_back(start + 1 + below(length - start));
      all.chunk_kinds.push_back(below(1000));
    }
    for (std::vector<int32_t>& edges : all.edges) {
      for (int32_t e = 0; chunks > 0 && e < 3 * chunks; ++e) {
        const int32_t from = below(chunks);
        edges.push_back(from);
        edges.push_back(
            std::min(chunks - 1, below(2) == 0 ? below(chunks) : from));
      }
    }
    all.close_document();
  }
  return all;
}

// Counts edges whose chunks begin in different parts, by looking at every part.
int64_t edges_across(const Documents& all,
                     const std::vector<DocumentPart>& parts) {
  int64_t count = 0;
  for (int64_t document = 0; document < all.size(); ++document) {
    const auto d = static_cast<size_t>(document);
    const auto part_of = [&](int32_t chunk) {
      const int32_t token =
          all.chunk_starts[static_cast<size_t>(all.chunk_start[d] + chunk)];
      for (size_t p = 0; p < parts.size(); ++p) {
        const int32_t within = token - parts[p].offset;
        if (parts[p].document == document && within >= 0 &&
            within < parts[p].length) {
          return static_cast<int64_t>(p);
        }
      }
      return int64_t{-1};
    };
    for (size_t kind = 0; kind < 2; ++kind) {
      for (int64_t e = all.edge_start[kind][d]; e < all.edge_start[kind][d + 1];
           ++e) {
        const auto at = static_cast<size_t>(2 * e);
        const int64_t from = part_of(all.edges[kind][at]);
        const int64_t to = part_of(all.edges[kind][at + 1]);
        count += from >= 0 && to >= 0 && from != to ? 1 : 0;
      }
    }
  }
  return count;
}

TEST(RowStreams, PartsOfADocumentHaveTheirChunksAndEdges) {
  const uint64_t first = testing::first_seed(1);
  for (int64_t i = 0; i < testing::case_count(400); ++i) {
    const uint64_t seed = first + static_cast<uint64_t>(i);
    const Documents all = tangled(seed);
    StreamOptions options = options_of(seed);
    options.pack.long_documents = static_cast<LongDocuments>(seed / 4 % 4);
    options.max_chunks = seed % 3 == 0 ? 5 : 400;
    options.max_edges = seed % 5 == 0 ? 7 : 2000;
    const auto add = [&](int64_t document, Documents& into) {
      const auto d = static_cast<size_t>(document);
      const auto copy = [](const std::vector<int32_t>& from, int64_t begin,
                           int64_t end, std::vector<int32_t>& to) {
        to.insert(to.end(), from.begin() + begin, from.begin() + end);
      };
      copy(all.input_ids, all.token_start[d], all.token_start[d + 1],
           into.input_ids);
      copy(all.chunk_starts, all.chunk_start[d], all.chunk_start[d + 1],
           into.chunk_starts);
      copy(all.chunk_ends, all.chunk_start[d], all.chunk_start[d + 1],
           into.chunk_ends);
      copy(all.chunk_kinds, all.chunk_start[d], all.chunk_start[d + 1],
           into.chunk_kinds);
      for (size_t kind = 0; kind < 2; ++kind) {
        copy(all.edges[kind], 2 * all.edge_start[kind][d],
             2 * all.edge_start[kind][d + 1], into.edges[kind]);
      }
    };
    int64_t read = 0;
    auto stream = RowStream::open(
        std::make_unique<Listed>(all.size(), add, &read), options);
    ChunkAccount expected;
    std::vector<DocumentPart> parts;
    while (true) {
      const Rows rows = *stream->next(3);
      if (rows.rows == 0) break;
      ASSERT_TRUE(check_rows(rows, "stream"));
      for (int64_t r = 0; r < rows.rows; ++r) {
        for (size_t kind = 0; kind < 2; ++kind) {
          Structure want;
          int32_t begin = 0;
          for (const DocumentPart& part : parts_in(rows, r)) {
            add_part(all, part, begin, rows.shape, kind, want);
            begin += part.length;
            if (kind == 0) parts.push_back(part);
          }
          Structure got;
          const auto chunks = rows.row(num_chunks, r)[0];
          const auto edges =
              rows.row(kind == 0 ? num_call_edges : num_type_edges, r)[0];
          const auto head = [&](RowColumn column, int32_t n) {
            const auto all_of = rows.row(column, r);
            return std::vector<int32_t>(all_of.begin(), all_of.begin() + n);
          };
          got.starts = head(chunk_starts, chunks);
          got.ends = head(chunk_ends, chunks);
          got.kinds = head(chunk_kinds, chunks);
          const std::vector<int32_t> pairs =
              head(kind == 0 ? call_edges : type_edges, 2 * edges);
          for (size_t e = 0; e < pairs.size(); e += 2) {
            got.from.push_back(pairs[e]);
            got.to.push_back(pairs[e + 1]);
          }
          got.account = want.account;
          ASSERT_EQ(got, want) << "seed " << seed;
          expected.edges_out += want.account.edges_out;
          expected.edges_over += want.account.edges_over;
          if (kind == 1) continue;
          expected.chunks_out += want.account.chunks_out;
          expected.chunks_cut += want.account.chunks_cut;
          expected.chunks_over += want.account.chunks_over;
        }
      }
    }
    expected.chunks_in = std::ssize(all.chunk_starts);
    expected.edges_in =
        (std::ssize(all.edges[0]) + std::ssize(all.edges[1])) / 2;
    expected.edges_across = edges_across(all, parts);
    ASSERT_EQ(stream->report().chunks, expected) << "seed " << seed;
    if (options.pack.long_documents == LongDocuments::split) {
      EXPECT_EQ(stream->report().chunks.edges_dropped(), 0);
    }
  }
}

TEST(RowStreams, RoomForChunksIsAPolicy) {
  const testing::TempFolder folder;
  const std::string path = folder.file("a.jsonl");
  ASSERT_TRUE(write_file(path, write_documents(60, 2).text));
  StreamOptions options = options_of(2);
  options.max_chunks = 2;
  options.max_edges = 1;
  RowStream stream = stream_of(path, options);
  const Rows rows = *stream.next(1000);
  EXPECT_TRUE(check_rows(rows, "stream"));
  EXPECT_GT(stream.report().chunks.chunks_over, 0);
  EXPECT_GT(stream.report().chunks.edges_over, 0);
  EXPECT_EQ(rows.shape, (RowShape{options.pack.tokens, 2, 1}));
  options.max_edges = 0;  // 0: twice the chunks
  EXPECT_EQ(stream_of(path, options).shape().max_edges, 4);
  options.max_edges = 1;
  options.chunk_room = ChunkRoom::refuse;
  RowStream strict = stream_of(path, options);
  const auto refused = strict.next(1000);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().kind, ErrorKind::limit);
}

TEST(RowStreamErrors, WhatHasNoRoomIsToldByFileRowAndColumn) {
  const testing::TempFolder folder;
  const std::string first = folder.file("a.jsonl");
  const std::string path = folder.file("b.jsonl");
  const std::string good = "{\"input_ids\": [1, 2, 3]}\n";
  const std::string chunks =
      "\"chunk_starts\": [0, 1, 2], \"chunk_ends\": [1, 2, 3]";
  const std::string pairs = "[[0, 1], [1, 2], [2, 0]]";
  const auto said = [&](const std::string& more, int64_t max_chunks,
                        bool resumed) {
    EXPECT_TRUE(write_file(first, good + good));
    EXPECT_TRUE(write_file(
        path, good + "\n" + "{\"input_ids\": [1, 2, 3], " + more + "}\n"));
    StreamOptions options;
    options.pack.tokens = 3;
    options.pack.window_rows = 1;
    options.max_chunks = max_chunks;
    options.max_edges = 2;
    options.chunk_room = ChunkRoom::refuse;
    StreamPosition from;
    if (resumed) {
      auto before =
          RowStream::open(std::move(*open_documents({first, path})), options);
      EXPECT_TRUE(before->next(3));
      from = before->position();
    }
    auto stream = RowStream::open(std::move(*open_documents({first, path})),
                                  options, from);
    EXPECT_TRUE(stream);
    const auto rows = stream->next(10);
    if (rows) return std::string();
    std::string text = rows.error().message;
    text.replace(text.find(path), path.size(), "b.jsonl");
    return text;
  };
  EXPECT_EQ(said(chunks, 3, false), "");
  for (const bool resumed : {false, true}) {
    EXPECT_EQ(
        said(chunks, 2, resumed),
        "[data] a row must have at most 2 of chunk_starts, found more for "
        "line 3 of 'b.jsonl'");
    for (const char* const edges : {"call_edges", "type_edges"}) {
      EXPECT_EQ(
          said(fmt::format("{}, \"{}\": {}", chunks, edges, pairs), 3, resumed),
          fmt::format("[data] a row must have at most 2 of {}, found more for "
                      "line 3 of 'b.jsonl'",
                      edges));
    }
  }
}

// Rows are written in full, whatever the reused memory holds.
TEST(RowStreams, NothingOfSpareRowsStays) {
  const testing::TempFolder folder;
  const std::string path = folder.file("a.jsonl");
  ASSERT_TRUE(write_file(
      path, write_documents(60, 3).text + "{\"input_ids\": [1, 2, 3]}\n"));
  for (uint64_t seed = 0; seed < 8; ++seed) {
    const StreamOptions options = options_of(seed);
    RowStream fresh = stream_of(path, options);
    RowStream again = stream_of(path, options);
    for (size_t i = 0;; ++i) {
      Rows spare;
      for (std::vector<int32_t>& column : spare.columns) {
        column.assign(i % 3 * 700, -77);  // no memory, too little, too much
      }
      const Rows rows = *fresh.next(4);
      ASSERT_EQ(*again.next(4, std::move(spare)), rows) << seed;
      ASSERT_TRUE(check_rows(rows, "stream"));
      if (rows.rows == 0) break;
    }
  }
}

TEST(RowStreams, AFewRowsTakeTheirOwnRoomAlone) {
  const testing::TempFolder folder;
  const std::string path = folder.file("a.jsonl");
  ASSERT_TRUE(write_file(path, "{\"input_ids\": [1, 2, 3]}\n"));
  const Rows rows = *stream_of(path, options_of(1)).next(1 << 19);
  EXPECT_EQ(rows.rows, 1);
  EXPECT_EQ(std::ssize(rows.column(input_ids)), rows.shape.tokens);
  EXPECT_LT(rows.columns[0].capacity(), size_t{1} << 19);
}

TEST(RowStreams, ColumnsAreTheSameWhateverADataSetHas) {
  const testing::TempFolder folder;
  const std::string rich = folder.file("rich.jsonl");
  const std::string plain = folder.file("plain.jsonl");
  ASSERT_TRUE(write_file(rich, write_documents(40, 1).text));
  ASSERT_TRUE(write_file(plain, "{\"input_ids\": [1, 2, 3]}\n"));
  const StreamOptions options = options_of(1);
  const Rows a = *stream_of(rich, options).next(1);
  const Rows b = *stream_of(plain, options).next(1);
  EXPECT_EQ(a.shape, b.shape);
  for (size_t c = 0; c < kRowColumns; ++c) {
    EXPECT_EQ(a.columns[c].size(), b.columns[c].size());
  }
}

// Spans that are empty, overlapping or apart, against a look at every token.
TEST(RowStreams, ChunksOfCharactersAreTheTokensThatTheyTouch) {
  const testing::TempFolder folder;
  const std::string path = folder.file("a.jsonl");
  std::mt19937_64 random(17);
  const auto below = [&](int64_t n) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
  };
  int64_t touching = 0, refused = 0;
  for (int64_t round = 0; round < 600; ++round) {
    const int64_t tokens = 1 + below(9);
    std::vector<std::pair<int64_t, int64_t>> spans;
    int64_t begin = below(3), end = begin;
    for (int64_t t = 0; t < tokens; ++t) {
      begin += below(3);
      end = std::max({begin, end, begin + below(4)});
      spans.emplace_back(begin, end);
    }
    const int64_t from = below(end + 2), to = from + 1 + below(6);
    std::vector<int64_t> touched;
    for (int64_t t = 0; t < tokens; ++t) {
      if (spans[t].first < to && spans[t].second > from) touched.push_back(t);
    }
    std::string text;
    for (const auto& [b, e] : spans) {
      text += fmt::format("{}[{},{}]", text.empty() ? "" : ",", b, e);
    }
    ASSERT_TRUE(write_file(
        path, fmt::format("{{\"input_ids\": [{}], \"token_spans\": [{}], "
                          "\"chunk_unit\": \"character\", \"chunk_starts\": "
                          "[{}], \"chunk_ends\": [{}]}}\n",
                          fmt::join(std::vector<int>(spans.size(), 1), ","),
                          text, from, to)));
    const auto rows = stream_of(path, options_of(0)).next(1);
    if (touched.empty()) {
      ++refused;
      ASSERT_FALSE(rows) << text << ' ' << from << ' ' << to;
      continue;
    }
    ++touching;
    ASSERT_TRUE(rows) << rows.error().message << text << from << ' ' << to;
    EXPECT_EQ(rows->row(chunk_starts, 0)[0], touched.front())
        << text << ' ' << from << ' ' << to;
    EXPECT_EQ(rows->row(chunk_ends, 0)[0], touched.back() + 1)
        << text << ' ' << from << ' ' << to;
  }
  EXPECT_GT(touching, 300);
  EXPECT_GT(refused, 20);
}

TEST(RowStreams, CharactersNeedExactSpans) {
  const testing::TempFolder folder;
  const std::string path = folder.file("a.jsonl");
  const std::string chunk =
      "\"chunk_unit\": \"character\", \"chunk_starts\": [2], \"chunk_ends\": "
      "[6]";
  ASSERT_TRUE(write_file(path,
                         "{\"input_ids\": [5, 6, 7, 8], \"token_spans\": "
                         "[[0,2],[2,3],[4,7],[7,9]], " +
                             chunk + "}\n"));
  const Rows rows = *stream_of(path, options_of(0)).next(1);
  EXPECT_EQ(rows.row(chunk_starts, 0)[0], 1);
  EXPECT_EQ(rows.row(chunk_ends, 0)[0], 3);
  // Byte tokens: three belong to one character.
  ASSERT_TRUE(write_file(path,
                         "{\"input_ids\": [5, 6, 7, 8], \"token_spans\": "
                         "[[0,2],[2,3],[2,3],[2,4]], " +
                             chunk + "}\n"));
  const Rows bytes = *stream_of(path, options_of(0)).next(1);
  EXPECT_EQ(bytes.row(chunk_starts, 0)[0], 1);
  EXPECT_EQ(bytes.row(chunk_ends, 0)[0], 4);
}

std::string said(const std::string& line) {
  const testing::TempFolder folder;
  const std::string path = folder.file("a.jsonl");
  EXPECT_TRUE(write_file(path, "{\"input_ids\": [1, 2, 3]}\n" + line + "\n"));
  auto source = open_json_lines({path}, {.max_line_bytes = 200});
  auto stream = RowStream::open(std::move(*source), options_of(1));
  const auto rows = stream->next(4);
  std::string text = rows ? "" : rows.error().message;
  const size_t at = text.find(folder.path().string());
  if (at != std::string::npos) {
    text.replace(at, folder.path().string().size() + 1, "");
  }
  return text;
}

TEST(RowStreamErrors, FilesOfOtherKindsAreNamed) {
  const testing::TempFolder folder;
  const std::string path = folder.file("a.jsonl");
  for (const auto& [bytes, kind] :
       {std::pair("\x1f\x8b\x08", "gzip"), std::pair("PAR1", "Parquet"),
        std::pair("ARROW1", "Arrow IPC")}) {
    ASSERT_TRUE(write_file(path, bytes));
    Documents documents;
    auto source = open_json_lines({path});
    const auto read = (*source)->read(documents);
    ASSERT_FALSE(read);
    EXPECT_EQ(read.error().message,
              fmt::format("[data] documents must be JSON lines, or files named "
                          ".parquet, .arrow, .arrows, .feather or .ipc, found "
                          "{} for '{}'",
                          kind, path));
  }
}

TEST(RowStreamErrors, BadLinesAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {"[]",
       "[data] a line must be an object, found an array of 0 for line 2 "
       "of 'a.jsonl'"},
      {"{}",
       "[data] a document must have the column input_ids, found none for line "
       "2 of 'a.jsonl'"},
      {"{\"input_ids\": [1, 2",
       "[data] text must be valid JSON, found the end "
       "of the text for line 1, column 20 of line 2 "
       "of 'a.jsonl'"},
      {"{\"input_ids\": 5}",
       "[data] input_ids must be an array of integers, found the integer 5 for "
       "line 2 of 'a.jsonl'"},
      {"{\"input_ids\": [1, \"x\"]}",
       "[data] element 1 of input_ids of line 2 of 'a.jsonl' must be an "
       "integer "
       "of 0 to 2147483647, found the string 'x' for it"},
      {"{\"input_ids\": [null]}",
       "[data] element 0 of input_ids of line 2 of 'a.jsonl' must be an "
       "integer "
       "of 0 to 2147483647, found null for it"},
      {"{\"input_ids\": [-1]}", "found the integer -1 for it"},
      {"{\"input_ids\": [3000000000]}", "found the integer 3000000000 for it"},
      {"{\"input_ids\": [18446744073709551615]}",
       "found the integer 18446744073709551615 for it"},
      {"{\"input_ids\": [1.5]}", "found the float 1.5 for it"},
      {"{\"input_ids\": [1, 2], \"ast_depth\": [1]}",
       "[data] ast_depth must be as long as the tokens, 2, found 1 for line 2 "
       "of 'a.jsonl'"},
      {"{\"input_ids\": [1], \"loss_mask\": [2]}",
       "element 0 of loss_mask of line 2 of 'a.jsonl' must be an integer of 0 "
       "to 1"},
      {"{\"input_ids\": [1, 2], \"chunk_starts\": [0], \"chunk_ends\": [3]}",
       "[data] chunk_starts and chunk_ends must hold some of the document's 2 "
       "tokens, found 0 to 3 for element 0 of line 2 of 'a.jsonl'"},
      {"{\"input_ids\": [1, 2], \"chunk_starts\": [0]}",
       "[data] chunk_starts and chunk_ends must be of one length, found 1 and 0"
       " for line 2 of 'a.jsonl'"},
      {"{\"input_ids\": [1], \"call_edges\": [[0, 0]]}",
       "[data] call_edges must join the document's 0 chunks, found 0 for "
       "element 0 of line 2 of 'a.jsonl'"},
      {"{\"input_ids\": [1], \"type_edges\": [[0]]}",
       "type_edges must be an array of pairs, found an array of 1"},
      {"{\"input_ids\": [1], \"chunk_unit\": \"word\"}",
       "chunk_unit must be token or character, found 'word'"},
      {"{\"input_ids\": [1], \"chunk_unit\": \"character\", \"chunk_starts\": "
       "[0], \"chunk_ends\": [1]}",
       "[data] chunks of characters must come with the exact characters of "
       "each token in token_spans, found none for line 2 of 'a.jsonl'"},
      {"{\"input_ids\": [1, 2], \"chunk_unit\": \"character\", "
       "\"token_spans\": [[0, 3], [2, 4]]}",
       ""},
      {"{\"input_ids\": [1, 2], \"chunk_unit\": \"character\", "
       "\"token_spans\": [[1, 3], [0, 4]]}",
       "token_spans must not fall, found the begin 0 after 1 for element 1"},
      {"{\"input_ids\": [1, 2], \"chunk_unit\": \"character\", "
       "\"token_spans\": [[0, 3], [0, 2]]}",
       "token_spans must not fall, found the end 2 after 3 for element 1"},
      {"{\"input_ids\": [1], \"chunk_unit\": \"character\", "
       "\"token_spans\": [[3, 2]]}",
       "a token's span must end at or after its begin, found 3 to 2 for "
       "element 0 of token_spans of line 2"},
      {"{\"input_ids\": [1, 2], \"token_spans\": [[0, 1]]}",
       "token_spans must be as long as the tokens, 2, found 1 for line 2"},
      {"{\"input_ids\": [1], \"ast_depth\": null, \"loss_mask\": [true]}", ""},
      {"{\"input_ids\": [1], \"ast_depth\": [true]}", "found true for it"},
      {"{\"input_ids\": [1], \"input_ids\": [1]}",
       "a key must appear once, found it twice for 'input_ids'"},
  };
  for (const auto& [line, says] : cases) {
    const std::string text = said(line);
    EXPECT_NE(text.find(says), std::string::npos) << line << "\n" << text;
    EXPECT_EQ(text.empty(), std::string_view(says).empty()) << text;
  }
  EXPECT_EQ(said("{\"input_ids\": [" + std::string(300, ' ') + "]}"),
            "[data] a line must be at most 200 bytes, found more for line 2 of "
            "'a.jsonl'");
  // Text after a zero byte is an error, not ignored.
  EXPECT_EQ(
      said(std::string("{\"input_ids\": [1]}") + '\0' + "{\"input_ids\": [2]}"),
      "[data] text must be valid JSON, found '\\x00' for line 1, column 19 "
      "of line 2 of 'a.jsonl'");
  EXPECT_EQ(said(""), "");
  EXPECT_FALSE(open_json_lines({}));
  auto missing = open_json_lines({"/nonexistent/a.jsonl"});
  Documents documents;
  EXPECT_EQ((*missing)->read(documents).error().kind, ErrorKind::io);
}

}  // namespace
}  // namespace tessera::data
