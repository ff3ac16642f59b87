// tessera/data.h: packed rows: what a row of documents holds, always in the
// same columns, shapes and dtypes, whatever a data set has.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/attention.h"
#include "tessera/facts.h"
#include "tessera/mask.h"
#include "tessera/plan.h"
#include "tessera/result.h"

namespace tessera {

// The columns of a row, in the order of row_columns().
enum class RowColumn : uint8_t {
  input_ids,
  target_ids,
  loss_mask,
  doc_ids,
  valid_token_count,
  num_docs,
  positions,
  structure_ids,
  dep_levels,
  ast_depth,
  sibling_index,
  node_type,
  chunk_starts,
  chunk_ends,
  chunk_kinds,
  num_chunks,
  call_edges,
  num_call_edges,
  type_edges,
  num_type_edges,
};
inline constexpr size_t kRowColumns = 20;

// What a column has a number for: the row, each token or each chunk; for each
// edge it has two, the chunks that it joins.
enum class RowUnit : uint8_t { row, token, chunk, edge };

struct RowColumnSpec {
  std::string_view name;
  RowUnit unit;
  Dtype dtype;
  bool required;    // of a file of rows; the others are filled where absent
  bool pad_id;      // padding is the pad id of the rows, else `padding`
  int32_t padding;  // where a row has no such token, chunk or edge
  std::string_view about;
};

// The schema, written once.
std::span<const RowColumnSpec> row_columns();
const RowColumnSpec& spec_of(RowColumn column);

inline constexpr int64_t kMaxRowTokens = int64_t{1} << 24;
inline constexpr int64_t kMaxWindowRows = int64_t{1} << 24;
inline constexpr int64_t kMaxRowsPerStep = int64_t{1} << 16;
inline constexpr int64_t kMaxRowChunks = int64_t{1} << 24;
inline constexpr int64_t kMaxRowNumbers = int64_t{1} << 30;  // of all rows

struct RowShape {
  int64_t tokens = 0;
  int64_t max_chunks = 0;
  int64_t max_edges = 0;  // of each kind

  // max(128, tokens / 32) chunks and twice as many edges.
  static RowShape of(int64_t tokens);
  // Numbers in a row's column.
  int64_t size(RowColumn column) const;
  // The array of `rows` rows: [rows], [rows, tokens], [rows, max_edges, 2] ...
  std::vector<int64_t> array(RowColumn column, int64_t rows) const;
  bool operator==(const RowShape&) const = default;
};

// Rows, an array a column. Every column is there.
struct Rows {
  RowShape shape;
  int64_t rows = 0;
  int32_t pad_id = 0;
  std::array<std::vector<int32_t>, kRowColumns> columns;

  // Rows of padding alone.
  static Result<Rows> make(const RowShape& shape, int64_t rows,
                           int32_t pad_id = 0);

  std::span<int32_t> row(RowColumn column, int64_t r);
  std::span<const int32_t> row(RowColumn column, int64_t r) const;
  const std::vector<int32_t>& column(RowColumn c) const {
    return columns[static_cast<size_t>(c)];
  }
  // Ids and counts as attention's facts: views, nothing is converted.
  Facts facts() const;
  bool operator==(const Rows&) const = default;
};

// Checks what holds for every row: ids 0, 1, 2, ... over the valid tokens and
// -1 after them, padding that is padding, chunks inside a document, edges
// between chunks of one document. An error names `file`, row and column.
Result<void> check_rows(const Rows& rows, std::string_view file);

// A .safetensors file with a tensor for each column, or a file of
// save_row_file, by how its name ends. Every column is written, whatever the
// rows hold. Columns that a file lacks, if not required, are filled when it is
// read; what is read is checked.
Result<void> save_rows(const std::string& path, const Rows& rows);
Result<Rows> load_rows(const std::string& path);

// One file that takes rows as they come: Parquet or Arrow IPC (.arrow,
// .feather, .ipc; .arrows is its stream form), through the component
// tessera_arrow.so. Every column is there, as lists of a fixed size. What
// `next` gives is a row group or a record batch, until it gives no row. The
// file is there when all of it is, or not at all.
Result<void> save_row_file(const std::string& path,
                           std::function<Result<Rows>()> next);
// Whether pack_row_folder (tessera/documents.h) may write there: a folder that
// is new or empty, or that a run which was killed has left unfinished.
Result<void> check_row_folder(const std::string& path);
// By how its name ends.
bool is_row_file(std::string_view path);
// Whether save_row_file can write there: ask before long work.
Result<void> check_row_file(const std::string& path);

// Packing: which part of which document lies in which row. It knows lengths
// alone and reads no token.

enum class PackStrategy : uint8_t {
  in_order,   // documents one after another, cut where a row ends
  first_fit,  // longest first, each into the first row with room
  best_fit,   // longest first, each into the row that it fills best
  by_cost,    // rows that cost alike; those of a step cost the same
};
// "inorder", "firstfit", "bestfit", "cost"
std::string_view to_string(PackStrategy strategy);
Result<PackStrategy> parse_pack_strategy(std::string_view text);

// What happens to a document that is longer than a row.
enum class LongDocuments : uint8_t {
  split,      // into rows of their own and a rest; by_cost, into as many parts
              // of like lengths. No token is lost
  keep_head,  // its first tokens
  keep_tail,  // its last tokens
  drop,       // nothing
};
std::string_view to_string(LongDocuments rule);  // "split", "keep_head", ...
Result<LongDocuments> parse_long_documents(std::string_view text);

struct PackOptions {
  int64_t tokens = 8192;  // of a row
  PackStrategy strategy = PackStrategy::best_fit;
  LongDocuments long_documents = LongDocuments::split;
  // Documents are packed a window at a time, as many as fill this many rows;
  // a window is packed alone, so what is held in memory has a bound. A stream
  // also ends one where its chunks or edges are as many as tokens may be.
  int64_t window_rows = 4096;
  int64_t rows_per_step = 8;  // that are computed together: batch times shards
  // by_cost puts rows of like cost into a step, and so documents of like
  // lengths. 0: rows as alike as possible; 1: any rows of the window.
  double mixing = 0;
  uint64_t seed = 0;  // the order of rows: all but in_order shuffle a window's
  // What attention costs: the tiles of this mask, whose only facts may be
  // documents. Absent: `causal & documents`.
  std::optional<Mask> mask = {};
  Tile tile = {};
};

// Tokens [offset, offset + length) of a document.
struct DocumentPart {
  int64_t document = 0;
  int32_t offset = 0;
  int32_t length = 0;

  bool operator==(const DocumentPart&) const = default;
};

// Where every token went.
struct PackAccount {
  int64_t documents = 0;
  int64_t empty_documents = 0;    // of no token: they lie in no row
  int64_t long_documents = 0;     // longer than a row
  int64_t dropped_documents = 0;  // by LongDocuments::drop
  int64_t parts = 0;
  int64_t tokens_in = 0;
  int64_t tokens_out = 0;      // in rows
  int64_t tokens_dropped = 0;  // by the rule for long documents
  int64_t rows = 0;
  int64_t padding = 0;

  // No token is lost or doubled, and every place in a row is accounted for.
  bool sums(int64_t row_tokens) const {
    return tokens_in == tokens_out + tokens_dropped &&
           rows * row_tokens == tokens_out + padding;
  }
  double fill() const {
    const int64_t places = tokens_out + padding;
    return places == 0
               ? 1
               : static_cast<double>(tokens_out) / static_cast<double>(places);
  }
  PackAccount& operator+=(const PackAccount& other);
  bool operator==(const PackAccount&) const = default;
};

struct Packing {
  int64_t tokens = 0;  // of a row
  std::vector<DocumentPart> parts;
  std::vector<int64_t> row_start{0};  // rows + 1: parts of a row
  PackAccount account;

  int64_t rows() const { return static_cast<int64_t>(row_start.size()) - 1; }
  std::span<const DocumentPart> row(int64_t r) const {
    const auto at = static_cast<size_t>(r);
    return {parts.data() + row_start[at],
            static_cast<size_t>(row_start[at + 1] - row_start[at])};
  }
  bool operator==(const Packing&) const = default;
};

inline constexpr int64_t kMaxWindowDocuments = int64_t{1} << 24;

// A step takes its rows from one window or, where a window ends within the
// step, from two. So packing goes on from a state.
struct PackState {
  int64_t window = 0;
  int64_t open_rows = 0;  // of the step that is not full
  double open_cost = 0;   // mean of theirs
  bool operator==(const PackState&) const = default;
};

// How many documents the next window takes.
Result<int64_t> next_window(std::span<const int32_t> lengths,
                            const PackOptions& options);
// All `lengths` are one window; documents are numbered from `first` on. Rows
// are added to `packing`.
Result<void> pack_window(std::span<const int32_t> lengths, int64_t first,
                         const PackOptions& options, PackState& state,
                         Packing& packing);
// Window after window.
Result<Packing> pack(std::span<const int32_t> lengths,
                     const PackOptions& options);

// What each row costs: active tiles of the mask.
Result<std::vector<int64_t>> row_costs(const Packing& packing,
                                       const PackOptions& options);

// How even steps are.
struct PackBalance {
  int64_t steps = 0;         // that are full; of none the rest says nothing
  double max_over_mean = 1;  // of a step's costs, on average over steps
  double worst = 1;          // of any step
  // Of the steps' mean lengths of parts: standard deviation over mean.
  double length_spread = 0;
  bool operator==(const PackBalance&) const = default;
};
// Counts over the steps so far; a stream goes on from them.
struct BalanceSums {
  // Of the step that is not full.
  int64_t rows = 0, most = 0, cost = 0, parts = 0, tokens = 0;
  int64_t steps = 0;  // that are full, and of them:
  double ratios = 0, worst = 1, lengths = 0, squares = 0;
  bool operator==(const BalanceSums&) const = default;
};

// How even the steps of a packing are whose rows have these costs.
PackBalance pack_balance(const Packing& packing, std::span<const int64_t> costs,
                         int64_t rows_per_step);

}  // namespace tessera
