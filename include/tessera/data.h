// tessera/data.h: packed rows of documents. Rows always have the same columns,
// shapes and dtypes, whatever fields a data set has.
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

// What the numbers of a column belong to: the row, each token, each chunk, or
// each edge, which has two numbers, the chunks that it joins.
enum class RowUnit : uint8_t { row, token, chunk, edge };

struct RowColumnSpec {
  std::string_view name;
  RowUnit unit;
  Dtype dtype;
  bool required;    // a file of rows must have it; others are filled if absent
  bool pad_id;      // padding is Rows::pad_id; else it is `padding`
  int32_t padding;  // the value in unused places of tokens, chunks or edges
  std::string_view about;
};

// The schema: all columns, in order of RowColumn.
std::span<const RowColumnSpec> row_columns();
const RowColumnSpec& spec_of(RowColumn column);

inline constexpr int64_t kMaxRowTokens = int64_t{1} << 24;
inline constexpr int64_t kMaxWindowRows = int64_t{1} << 24;
inline constexpr int64_t kMaxRowsPerStep = int64_t{1} << 16;
inline constexpr int64_t kMaxRowChunks = int64_t{1} << 24;
inline constexpr int64_t kMaxRowNumbers = int64_t{1} << 30;  // in all rows

struct RowShape {
  int64_t tokens = 0;
  int64_t max_chunks = 0;
  int64_t max_edges = 0;  // of each kind of edge

  // The default shape: max(128, tokens / 32) chunks and twice as many edges.
  static RowShape of(int64_t tokens);
  // How many numbers the column has in one row.
  int64_t size(RowColumn column) const;
  // The column's shape in `rows` rows: [rows], [rows, tokens],
  // [rows, max_edges, 2] ...
  std::vector<int64_t> array(RowColumn column, int64_t rows) const;
  bool operator==(const RowShape&) const = default;
};

// Packed rows, one array for each column. Every column is present.
struct Rows {
  RowShape shape;
  int64_t rows = 0;
  int32_t pad_id = 0;
  std::array<std::vector<int32_t>, kRowColumns> columns;

  // Rows that hold only padding.
  static Result<Rows> make(const RowShape& shape, int64_t rows,
                           int32_t pad_id = 0);

  std::span<int32_t> row(RowColumn column, int64_t r);
  std::span<const int32_t> row(RowColumn column, int64_t r) const;
  const std::vector<int32_t>& column(RowColumn c) const {
    return columns[static_cast<size_t>(c)];
  }
  // Document ids and valid token counts as facts: views of the columns.
  Facts facts() const;
  bool operator==(const Rows&) const = default;
};

// Checks that each row has document ids 0, 1, 2, ... over the valid tokens and
// -1 after them, correct padding values, chunks inside one document and edges
// between chunks of one document. An error names `file`, row and column.
Result<void> check_rows(const Rows& rows, std::string_view file);

// Saves and loads rows. The end of the name gives the format: a .safetensors
// file with one tensor for each column, or a format of save_row_file. Every
// column is always written. load_rows() fills columns that the file lacks, if
// they are not required, and checks the rows.
Result<void> save_rows(const std::string& path, const Rows& rows);
Result<Rows> load_rows(const std::string& path);

// Writes a stream of rows to one file, Parquet or Arrow IPC (.arrow, .feather,
// .ipc; .arrows is the stream format). It needs the component tessera_arrow.so.
// Every column is written, as fixed-size lists. Each result of `next` becomes a
// row group or a record batch, until `next` returns no row. The file appears
// only when it is complete.
Result<void> save_row_file(const std::string& path,
                           std::function<Result<Rows>()> next);
// Whether pack_row_folder (tessera/documents.h) may write to the path: a folder
// that is new or empty, or that a killed run has left unfinished.
Result<void> check_row_folder(const std::string& path);
// Whether the end of the name is that of a save_row_file format.
bool is_row_file(std::string_view path);
// Whether save_row_file can write to the path, so that a caller can check
// before long work.
Result<void> check_row_file(const std::string& path);

// Packing: which part of which document lies in which row. It depends on the
// lengths of documents only, not on their tokens.

enum class PackStrategy : uint8_t {
  in_order,   // in order, cut at the ends of rows
  first_fit,  // longest first, each into the first row with room
  best_fit,   // longest first, each into the row that it fills best
  by_cost,  // rows of similar cost, grouped so that a step's rows cost the same
};
// "inorder", "firstfit", "bestfit", "cost"
std::string_view to_string(PackStrategy strategy);
Result<PackStrategy> parse_pack_strategy(std::string_view text);

// What happens to a document that is longer than a row.
enum class LongDocuments : uint8_t {
  split,      // cut into whole rows and a rest; with by_cost, into as many
              // parts of similar lengths. No token is lost
  keep_head,  // the first tokens are kept, one row of them
  keep_tail,  // the last tokens are kept, one row of them
  drop,       // the document is dropped
};
std::string_view to_string(LongDocuments rule);  // "split", "keep_head", ...
Result<LongDocuments> parse_long_documents(std::string_view text);

struct PackOptions {
  int64_t tokens = 8192;  // tokens of a row
  PackStrategy strategy = PackStrategy::best_fit;
  LongDocuments long_documents = LongDocuments::split;
  // Documents are packed in windows, each with as many documents as fill this
  // many rows. Windows are packed independently, which bounds the memory. A
  // stream also ends a window whose chunks or edges number as many as its rows
  // have tokens.
  int64_t window_rows = 4096;
  int64_t rows_per_step = 8;  // rows computed together: batch times shards
  // by_cost puts rows of similar cost, and so documents of similar lengths,
  // into a step. 0: costs as similar as possible; 1: any rows of the window.
  double mixing = 0;
  uint64_t seed = 0;  // shuffles the rows of a window, except with in_order
  // The cost of a row is the number of active tiles of this mask, which may
  // need no facts but documents. Absent: `causal & documents`.
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

// Counts of documents and tokens: read, packed and dropped.
struct PackAccount {
  int64_t documents = 0;
  int64_t empty_documents = 0;    // without tokens; they are in no row
  int64_t long_documents = 0;     // longer than a row
  int64_t dropped_documents = 0;  // dropped by LongDocuments::drop
  int64_t parts = 0;
  int64_t tokens_in = 0;
  int64_t tokens_out = 0;      // tokens in rows
  int64_t tokens_dropped = 0;  // dropped by the rule for long documents
  int64_t rows = 0;
  int64_t padding = 0;

  // Whether the counts add up: every token is packed or dropped, and every
  // place in a row is a token or padding.
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
  int64_t tokens = 0;  // tokens of a row
  std::vector<DocumentPart> parts;
  std::vector<int64_t> row_start{0};  // rows + 1, into parts
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

// State that packing carries from one window to the next. If a window ends
// within a step, the step takes its other rows from the next window.
struct PackState {
  int64_t window = 0;
  int64_t open_rows = 0;  // rows of the step that is not full
  double open_cost = 0;   // mean cost of those rows
  bool operator==(const PackState&) const = default;
};

// How many of the documents the next window takes.
Result<int64_t> next_window(std::span<const int32_t> lengths,
                            const PackOptions& options);
// Packs all `lengths` as one window and appends the rows to `packing`. The
// documents have the numbers `first`, first + 1, ...
Result<void> pack_window(std::span<const int32_t> lengths, int64_t first,
                         const PackOptions& options, PackState& state,
                         Packing& packing);
// Packs all documents, window by window.
Result<Packing> pack(std::span<const int32_t> lengths,
                     const PackOptions& options);

// The cost of each row: active tiles of the mask.
Result<std::vector<int64_t>> row_costs(const Packing& packing,
                                       const PackOptions& options);

// How even the costs of a step's rows are.
struct PackBalance {
  int64_t steps = 0;  // full steps; with 0 the other fields have no meaning
  // Largest over mean cost of a step's rows, averaged over the steps.
  double max_over_mean = 1;
  double worst = 1;  // the largest such ratio of any step
  // Each step has a mean part length: the standard deviation of these over
  // their mean.
  double length_spread = 0;
  bool operator==(const PackBalance&) const = default;
};
// The sums behind PackBalance over the steps so far; a stream continues them.
struct BalanceSums {
  // Of the step that is not full; `most` is its largest cost.
  int64_t rows = 0, most = 0, cost = 0, parts = 0, tokens = 0;
  int64_t steps = 0;  // full steps
  // Over full steps: sum and maximum of max / mean of the costs, and sums of
  // the mean part lengths and of their squares.
  double ratios = 0, worst = 1, lengths = 0, squares = 0;
  bool operator==(const BalanceSums&) const = default;
};

// The balance of a packing whose rows have these costs.
PackBalance pack_balance(const Packing& packing, std::span<const int64_t> costs,
                         int64_t rows_per_step);

}  // namespace tessera
