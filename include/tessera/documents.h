// tessera/documents.h: sources of documents, and the streams, folders and
// batches of packed rows made from them.
//
//   auto source = open_json_lines({"a.jsonl", "b.jsonl"});
//   auto stream = RowStream::open(std::move(*source), options);
//   while (auto rows = stream->next(8)) { if (rows->rows == 0) break; ... }
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tessera/batch.h"
#include "tessera/data.h"
#include "tessera/result.h"

// Arrow's public C data interface. The guards are Arrow's own, so a program may
// also include another copy.
#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE
extern "C" {
struct ArrowSchema {
  const char* format;
  const char* name;
  const char* metadata;
  int64_t flags;
  int64_t n_children;
  struct ArrowSchema** children;
  struct ArrowSchema* dictionary;
  void (*release)(struct ArrowSchema*);
  void* private_data;
};

struct ArrowArray {
  int64_t length;
  int64_t null_count;
  int64_t offset;
  int64_t n_buffers;
  int64_t n_children;
  const void** buffers;
  struct ArrowArray** children;
  struct ArrowArray* dictionary;
  void (*release)(struct ArrowArray*);
  void* private_data;
};
}
#endif

#ifndef ARROW_C_STREAM_INTERFACE
#define ARROW_C_STREAM_INTERFACE
extern "C" {
struct ArrowArrayStream {
  int (*get_schema)(struct ArrowArrayStream*, struct ArrowSchema* out);
  int (*get_next)(struct ArrowArrayStream*, struct ArrowArray* out);
  const char* (*get_last_error)(struct ArrowArrayStream*);
  void (*release)(struct ArrowArrayStream*);
  void* private_data;
};
}
#endif

namespace tessera {

// The most tokens of a document, and the most of any other items it has.
inline constexpr int64_t kMaxDocumentTokens = int64_t{1} << 28;

// Documents, concatenated column by column. A column that no document has is
// empty. If only some have it, the others hold 0 (in loss_mask 1).
struct Documents {
  static constexpr size_t kStructures = 5;  // structure_ids to node_type

  std::vector<int64_t> token_start{0};  // documents + 1
  std::vector<int32_t> input_ids;
  std::vector<int32_t> loss_mask;  // empty: every token counts
  std::array<std::vector<int32_t>, kStructures> structure;

  // A chunk is tokens [start, end) of its document. An edge is a pair of chunk
  // numbers of its document.
  std::vector<int64_t> chunk_start{0};  // documents + 1
  std::vector<int32_t> chunk_starts, chunk_ends, chunk_kinds;
  // Call edges, then type edges; starts are documents + 1.
  std::array<std::vector<int64_t>, 2> edge_start{{{0}, {0}}};
  std::array<std::vector<int32_t>, 2> edges;

  int64_t size() const { return static_cast<int64_t>(token_start.size()) - 1; }
  int64_t tokens() const { return token_start.back(); }
  void clear();
  // Ends a document whose values the caller appended to the columns.
  void close_document();
};

// The place from which a source continues to read.
struct SourcePosition {
  int64_t file = 0;
  int64_t offset = 0;  // in the file, in bytes or documents
  int64_t line = 0;

  bool operator==(const SourcePosition&) const = default;
};

// Documents in a fixed order. Loader threads call the functions, which may
// throw only std::bad_alloc; every other failure is returned as an error.
class DocumentSource {
 public:
  virtual ~DocumentSource() = default;
  // Appends the next document to `into`; returns false after the last one.
  // After an error the source must not be read again.
  virtual Result<bool> read(Documents& into) = 0;
  virtual SourcePosition position() const = 0;
  // The name in errors of the document that ends at a position: "row 3 of
  // 'a.parquet'". Empty: errors give its number within its window.
  virtual std::string place(const SourcePosition& /*end*/) const { return {}; }
  virtual Result<void> seek(const SourcePosition& position) = 0;
  // Sets how many threads may read at the same time, for files that are opened
  // after the call. The documents do not depend on it.
  virtual void set_workers(int64_t /*workers*/) {}
  // Names of columns that were found but that rows do not have.
  virtual std::set<std::string> ignored() const { return {}; }
  // A digest that identifies the inputs: for files, of their sizes and of their
  // names without folders. Empty: unknown.
  virtual std::string inputs() const { return {}; }
};

struct JsonLinesLimits {
  int64_t max_line_bytes = int64_t{1} << 26;
};

// Reads files of JSON lines, one object per line. `input_ids` is required.
// loss_mask, structure_ids, dep_levels, ast_depth, sibling_index and node_type
// are arrays of the same length. chunk_starts, chunk_ends and chunk_kinds come
// together; call_edges and type_edges are pairs of chunk numbers. If
// `chunk_unit` is "character", chunks are ranges of characters and
// `token_spans`, one [begin, end] per token, is required.
Result<std::unique_ptr<DocumentSource>> open_json_lines(
    std::vector<std::string> files, const JsonLinesLimits& limits = {});

// Reads files in order. The end of a name gives the format: .parquet, .arrow,
// .arrows, .feather and .ipc have one row per document, with the columns of
// open_arrow_stream; any other file is JSON lines. The Arrow formats need the
// component tessera_arrow.so, which this call loads; they can be sought to any
// row.
Result<std::unique_ptr<DocumentSource>> open_documents(
    std::vector<std::string> files);

// Counts of chunks and edges: read, kept in rows, and lost.
struct ChunkAccount {
  int64_t chunks_in = 0;
  int64_t chunks_out = 0;
  int64_t chunks_cut = 0;   // of chunks_out: cut by the end of a row
  int64_t chunks_over = 0;  // lost: their row had no more room
  int64_t edges_in = 0;
  int64_t edges_out = 0;
  int64_t edges_over = 0;    // lost: no room for them or one of their chunks
  int64_t edges_across = 0;  // lost: their chunks lie in different rows
  // The remainder, valid once all rows were returned: chunks that begin in
  // dropped tokens, and edges of such chunks.
  int64_t chunks_dropped() const {
    return chunks_in - chunks_out - chunks_over;
  }
  int64_t edges_dropped() const {
    return edges_in - edges_out - edges_over - edges_across;
  }
  bool operator==(const ChunkAccount&) const = default;
};

// What happens if a row has no room for its chunks or edges: drop them, or
// return an error.
enum class ChunkRoom : uint8_t { drop, refuse };
std::string_view to_string(ChunkRoom room);

struct StreamOptions {
  PackOptions pack;
  int32_t pad_id = 0;
  int64_t max_chunks = 0;  // 0: as in RowShape::of(tokens)
  int64_t max_edges = 0;   // 0: as in RowShape::of(tokens)
  ChunkRoom chunk_room = ChunkRoom::drop;
};

// The counts of a stream up to a position. A stream that is opened at the
// position continues them, so it counts all documents.
struct StreamCounts {
  PackAccount account;  // of the windows before the position's window
  // chunks_in and edges_in: of those windows; the rest: of the rows returned.
  ChunkAccount chunks;
  BalanceSums balance;  // of the windows before the position's window
  std::set<std::string> ignored;
  bool operator==(const StreamCounts&) const = default;
};

// Everything that a stream needs to continue from where another one was.
struct StreamPosition {
  SourcePosition source;  // begin of the window that rows come from
  PackState state;        // before that window
  int64_t rows = 0;       // rows of the window that were returned
  // Digests of the stream's options and of its source's inputs. A stream that
  // continues must have the same.
  std::string options, inputs;
  StreamCounts counted;
  bool operator==(const StreamPosition&) const = default;
};

// What happened to the documents that a stream has read.
struct StreamReport {
  PackAccount account;            // of the windows that were packed
  ChunkAccount chunks;            // of the rows that were returned
  PackBalance balance;            // of the windows that were packed
  std::set<std::string> ignored;  // columns found that rows do not have
  bool operator==(const StreamReport&) const = default;
};

// Packs documents into rows. Holds at most one window of documents in memory.
class RowStream {
 public:
  static Result<RowStream> open(std::unique_ptr<DocumentSource> source,
                                const StreamOptions& options,
                                const StreamPosition& from = {});
  RowStream(RowStream&&) noexcept;
  RowStream& operator=(RowStream&&) noexcept;
  ~RowStream();

  // The next `rows` rows; fewer at the end of the documents, then none. Reuses
  // the memory of `spare`.
  Result<Rows> next(int64_t rows, Rows spare = {});
  StreamPosition position() const;
  const RowShape& shape() const;

  // Counts from the first document on, including what another stream had read
  // before this one was opened.
  StreamReport report() const;

 private:
  struct State;
  explicit RowStream(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Options for packing files of documents into a folder of rows.
struct RowFolderOptions {
  StreamOptions stream;
  int64_t rows_per_file = 256;
  // The file format, and the end of the file names: "safetensors", "parquet" or
  // "arrow". The last two need the component tessera_arrow.so.
  std::string format = "safetensors";
  int64_t workers = 1;  // threads that read; the files do not depend on it
  // Pack everything again, even if a killed run has left finished files.
  bool restart = false;
  // Called before any work, with the number of rows that a killed run has left,
  // if it has left any.
  std::function<void(int64_t rows)> resumes = {};
  // Called with the rows of each file in order, including files that a killed
  // run has left.
  std::function<Result<void>(const Rows&)> each = {};
  // Called when all rows are written but before they appear in the folder. If
  // it returns an error, another run can continue from there. If an input is a
  // pipe, it is called after the rows appear.
  std::function<Result<void>()> last = {};
};

struct PackedFolder {
  int64_t files = 0;
  int64_t resumed_files = 0;      // of `files`: left by an earlier run
  int64_t resumed_rows = 0;       // rows of those files
  int64_t resumed_documents = 0;  // documents that were not read again
  // Counts all rows, including those of an earlier run.
  StreamReport report;
};

// Writes rows-00000.safetensors (or .parquet, .arrow) and so on into a folder,
// which is new or empty. The files appear only when all of them are finished. A
// run that is killed, or that fails with an error other than `invalid`, keeps
// its finished files, and the next run continues from them and makes the same
// files byte for byte. It must have the same inputs (name, size, time of
// change), options and version of Tessera, else it is refused. Nothing is kept
// if an input is a pipe or is invalid. Only one run at a time may use a folder.
Result<PackedFolder> pack_row_folder(const std::vector<std::string>& inputs,
                                     const std::string& path,
                                     const RowFolderOptions& options);

// Loads batches of packed rows, each with its attention plan. Threads make them
// ahead of use.
//
//   auto loader = Loader::open(std::move(source), options);
//   while (true) {
//     auto next = loader->next();
//     if (!next || !*next) break;  // an error, or the end
//     use((*next)->rows, (*next)->batch);
//   }
//   print(loader->report().account);  // of all documents

inline constexpr int64_t kMaxAhead = 64;

struct BatchOptions {
  int64_t rows = 8;         // rows of a batch
  std::vector<Mask> masks;  // empty: causal & documents
  Tile tile = {};
  Ceilings ceilings = {};
  int64_t ahead = 2;  // batches that are made before next() asks for them
  // Threads that plan batches, read Parquet columns and parse JSON lines. The
  // batches do not depend on the number.
  int64_t workers = 1;
};

struct LoaderOptions : BatchOptions {
  StreamOptions stream;
};

struct LoadedBatch {
  Rows rows;  // BatchOptions::rows rows; those from `filled` on are padding
  int64_t filled;        // less than BatchOptions::rows only in the last batch
  OwnedBatch batch;      // planned from doc_ids and valid_token_count
  StreamPosition after;  // Loader::open with it continues after this batch
  StreamReport report;   // at the time when this batch was made
};

// Keeps Rows that are no longer needed, to reuse their memory: page faults of
// new memory cost more than writing the rows. Any thread may call it.
class SpareRows {
 public:
  explicit SpareRows(size_t most) : most_(most) {}
  void give(Rows rows);  // frees them if `most` are kept already
  Rows take();           // empty Rows if none are kept

 private:
  const size_t most_;
  std::mutex mutex_;
  std::vector<Rows> rows_;
};

// Only one thread at a time may call a Loader. The destructor stops the
// loader's threads; it may wait until one of them has finished a read.
class Loader {
 public:
  // The masks may only need facts that rows have (Rows::facts).
  static Result<Loader> open(std::unique_ptr<DocumentSource> source,
                             const LoaderOptions& options,
                             const StreamPosition& from = {});
  // Loads rows that are packed already: a file that load_rows() accepts, or a
  // folder of such files, in order of their names. The files' headers are
  // checked here, the rows when they are read. `from` must be a position of a
  // loader that open_rows() opened. The report counts no documents.
  static Result<Loader> open_rows(const std::string& path,
                                  const BatchOptions& options,
                                  const StreamPosition& from = {});
  Loader(Loader&&) noexcept;
  Loader& operator=(Loader&&) noexcept;
  ~Loader();

  // The next batch; none after the last. An error is returned after all batches
  // that were made before it, and again by every later call.
  Result<std::optional<LoadedBatch>> next();
  // Whether next() can return at once; waits at most `milliseconds` for that.
  bool ready(int64_t milliseconds) const;
  // The position and report after the last batch that next() returned, and at
  // the end those of all documents. Before the first batch: those at which the
  // loader was opened. next() overwrites both.
  const StreamPosition& position() const;
  const StreamReport& report() const;
  const RowShape& shape() const;
  // Memory of Rows given to this object is reused for later batches. The object
  // may outlive the loader.
  std::shared_ptr<SpareRows> spare() const;
  // The loader's threads; they also run its source. None of them may destroy
  // the loader or wait for it.
  std::vector<std::thread::id> threads() const;

 private:
  struct State;
  explicit Loader(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Documents from an Arrow C stream, which pyarrow, Polars, DuckDB and others
// export. It needs no Arrow library, and the stream's buffers are not copied.
//
//   auto source = open_arrow_stream(&stream);  // takes ownership
//   auto rows = RowStream::open(std::move(*source), options);

// One row per document, with the columns of open_json_lines. A column has
// lists, large lists or fixed-size lists of integers of any width and sign
// (loss_mask: also of bools); edges are lists of lists. Columns may be plain or
// dictionary-encoded. A null means that the document lacks the field. The call
// takes ownership of the stream and releases it on an error too. Record batches
// are checked as far as the interface allows: it does not give the length of a
// buffer. The source can only seek forward. `name` is the stream's name in
// errors.
Result<std::unique_ptr<DocumentSource>> open_arrow_stream(
    ArrowArrayStream* stream, std::string name = "the stream");

}  // namespace tessera
