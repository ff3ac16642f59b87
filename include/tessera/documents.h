// tessera/documents.h: where documents come from, and the stream of packed rows
// that they become.
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

// Arrow's public binary interface; a program that has it already keeps its own.
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

// The most tokens of a document, and of anything else that it has.
inline constexpr int64_t kMaxDocumentTokens = int64_t{1} << 28;

// Documents one after another. A column that no document has is empty; one that
// only some have is 0 in the others.
struct Documents {
  static constexpr size_t kStructures = 5;  // structure_ids to node_type

  std::vector<int64_t> token_start{0};  // documents + 1
  std::vector<int32_t> input_ids;
  std::vector<int32_t>
      loss_mask;  // where there is one: else every token counts
  std::array<std::vector<int32_t>, kStructures> structure;

  // Tokens [start, end) of their document. Edges are pairs of its chunks.
  std::vector<int64_t> chunk_start{0};  // documents + 1
  std::vector<int32_t> chunk_starts, chunk_ends, chunk_kinds;
  std::array<std::vector<int64_t>, 2> edge_start{{{0}, {0}}};  // call, type
  std::array<std::vector<int32_t>, 2> edges;

  int64_t size() const { return static_cast<int64_t>(token_start.size()) - 1; }
  int64_t tokens() const { return token_start.back(); }
  void clear();
  // Ends a document, after its values were added to the columns.
  void close_document();
};

// Where a source continues to read.
struct SourcePosition {
  int64_t file = 0;
  int64_t offset = 0;  // bytes or documents of it
  int64_t line = 0;

  bool operator==(const SourcePosition&) const = default;
};

// Documents in an order that is always the same. A loader's threads read it, so
// it throws nothing but std::bad_alloc: what is wrong is an error.
class DocumentSource {
 public:
  virtual ~DocumentSource() = default;
  // Adds the next document; false after the last. After an error the source
  // must not be read.
  virtual Result<bool> read(Documents& into) = 0;
  virtual SourcePosition position() const = 0;
  // How errors name the document that ends at a position: "row 3 of
  // 'a.parquet'". Empty: by its number within its window.
  virtual std::string place(const SourcePosition& /*end*/) const { return {}; }
  virtual Result<void> seek(const SourcePosition& position) = 0;
  // How many threads may read at once, for files that are opened from now on.
  // Documents are the same for any number.
  virtual void set_workers(int64_t /*workers*/) {}
  // Columns that were read and that rows have no place for.
  virtual std::set<std::string> ignored() const { return {}; }
  // A digest of what is read: of files their names without folders and their
  // sizes. Empty: it cannot be told.
  virtual std::string inputs() const { return {}; }
};

struct JsonLinesLimits {
  int64_t max_line_bytes = int64_t{1} << 26;
};

// Files of JSON lines: an object a line, `input_ids` required; loss_mask,
// structure_ids, dep_levels, ast_depth, sibling_index and node_type are arrays
// as long; chunk_starts, chunk_ends and chunk_kinds go together; call_edges and
// type_edges are pairs of chunks. Where `chunk_unit` is "character", chunks are
// of characters and `token_spans`, a [begin, end] a token, is required.
Result<std::unique_ptr<DocumentSource>> open_json_lines(
    std::vector<std::string> files, const JsonLinesLimits& limits = {});

// Files one after another, each by how its name ends: .parquet, .arrow,
// .arrows, .feather and .ipc have a row a document, with the columns of
// open_arrow_stream; any other is JSON lines. Arrow's need the component
// tessera_arrow.so, which is loaded here, and are read from any row on.
Result<std::unique_ptr<DocumentSource>> open_documents(
    std::vector<std::string> files);

// Where chunks and edges went.
struct ChunkAccount {
  int64_t chunks_in = 0;
  int64_t chunks_out = 0;
  int64_t chunks_cut = 0;   // of those: a row ends within them
  int64_t chunks_over = 0;  // a row had no more room
  int64_t edges_in = 0;
  int64_t edges_out = 0;
  int64_t edges_over = 0;    // no room, or for one of their chunks
  int64_t edges_across = 0;  // their chunks lie in different rows
  // When all rows were handed out, the rest: chunks that began in dropped
  // tokens, and edges of such chunks.
  int64_t chunks_dropped() const {
    return chunks_in - chunks_out - chunks_over;
  }
  int64_t edges_dropped() const {
    return edges_in - edges_out - edges_over - edges_across;
  }
  bool operator==(const ChunkAccount&) const = default;
};

// What happens to more chunks or edges than a row has room for.
enum class ChunkRoom : uint8_t { drop, refuse };
std::string_view to_string(ChunkRoom room);

struct StreamOptions {
  PackOptions pack;
  int32_t pad_id = 0;
  int64_t max_chunks = 0;  // 0: those of RowShape::of(tokens)
  int64_t max_edges = 0;
  ChunkRoom chunk_room = ChunkRoom::drop;
};

// What a stream has counted up to a position. A stream that goes on from there
// counts the whole.
struct StreamCounts {
  PackAccount account;  // of the windows before the position's
  ChunkAccount chunks;  // in: of those windows; out: of rows handed out
  BalanceSums balance;  // of those windows
  std::set<std::string> ignored;
  bool operator==(const StreamCounts&) const = default;
};

// Everything that a stream needs to go on where it was.
struct StreamPosition {
  SourcePosition source;  // of the window that rows come from
  PackState state;        // before that window
  int64_t rows = 0;       // of the window, handed out
  // Digests of the stream's options and of its source's inputs, which must be
  // the same to go on.
  std::string options, inputs;
  StreamCounts counted;
  bool operator==(const StreamPosition&) const = default;
};

// What happened to the documents that a stream has read.
struct StreamReport {
  PackAccount account;            // of the windows that were packed
  ChunkAccount chunks;            // of the rows that were handed out
  PackBalance balance;            // of the windows that were packed
  std::set<std::string> ignored;  // columns that rows have no place for
  bool operator==(const StreamReport&) const = default;
};

// Rows of documents. Holds one window of documents in memory, no more.
class RowStream {
 public:
  static Result<RowStream> open(std::unique_ptr<DocumentSource> source,
                                const StreamOptions& options,
                                const StreamPosition& from = {});
  RowStream(RowStream&&) noexcept;
  RowStream& operator=(RowStream&&) noexcept;
  ~RowStream();

  // The next `rows` rows, fewer at the end, none after it. The memory of
  // `spare` serves again.
  Result<Rows> next(int64_t rows, Rows spare = {});
  StreamPosition position() const;
  const RowShape& shape() const;

  // Since the beginning of the documents, also what another stream read before
  // this one was opened.
  StreamReport report() const;

 private:
  struct State;
  explicit RowStream(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Documents of files to a folder of rows.
struct RowFolderOptions {
  StreamOptions stream;
  int64_t rows_per_file = 256;
  // "safetensors", "parquet" or "arrow": what its files are, and how their
  // names end. The last two need the component tessera_arrow.so.
  std::string format = "safetensors";
  int64_t workers = 1;  // threads that read: files are the same for any number
  // Begin from the start, even if a killed run has left rows.
  bool restart = false;
  // Called before any work with the number of rows that a killed run has left.
  std::function<void(int64_t rows)> resumes = {};
  // Gets the rows of each file in turn, also of files that a killed run has
  // left.
  std::function<Result<void>(const Rows&)> each = {};
  // Called when all rows are written, before they appear in the folder: after
  // an error of it another run goes on from there. Where an input is a pipe, it
  // is called after they appear.
  std::function<Result<void>()> last = {};
};

struct PackedFolder {
  int64_t files = 0;
  int64_t resumed_files = 0;  // of these: those of a run that was killed
  int64_t resumed_rows = 0;
  int64_t resumed_documents = 0;  // that were not read again
  // Of all rows, whoever wrote them.
  StreamReport report;
};

// Writes rows-00000.safetensors (or .parquet, .arrow) and so on into a folder,
// which is made or is empty. They are there when all of them are. What a run
// has finished when it is killed, or meets an error but `invalid`, is kept, and
// the next one goes on from there to the same files, byte for byte: if its
// inputs (name, size, time of change), its options and this version are the
// same, else it is refused. Nothing is kept where an input is a pipe, or is
// invalid. One run at a time.
Result<PackedFolder> pack_row_folder(const std::vector<std::string>& inputs,
                                     const std::string& path,
                                     const RowFolderOptions& options);

// Batches of packed rows, each with its attention plan, made ahead by threads.
//
//   auto loader = Loader::open(std::move(source), options);
//   while (true) {
//     auto next = loader->next();
//     if (!next || !*next) break;  // an error; the end
//     use((*next)->rows, (*next)->batch);
//   }
//   print(loader->report().account);  // of all documents

inline constexpr int64_t kMaxAhead = 64;

struct BatchOptions {
  int64_t rows = 8;         // of every batch
  std::vector<Mask> masks;  // none: causal & documents
  Tile tile = {};
  Ceilings ceilings = {};
  int64_t ahead = 2;  // batches made before they are asked for
  // Threads that plan them, read columns of Parquet and parse JSON lines:
  // batches are the same for any number.
  int64_t workers = 1;
};

struct LoaderOptions : BatchOptions {
  StreamOptions stream;
};

struct LoadedBatch {
  Rows rows;       // all of `rows` rows; those past `filled` are padding alone
  int64_t filled;  // fewer than `rows` in the last batch alone
  OwnedBatch batch;      // the plan of doc_ids and valid_token_count
  StreamPosition after;  // Loader::open goes on from here, exactly
  StreamReport report;   // as it was when this batch was made
};

// Rows that nobody needs any more, whose memory serves again: fresh pages cost
// more than what is written to them. Any thread may call it.
class SpareRows {
 public:
  explicit SpareRows(size_t most) : most_(most) {}
  void give(Rows rows);  // beyond `most` they are freed
  Rows take();           // empty where there are none

 private:
  const size_t most_;
  std::mutex mutex_;
  std::vector<Rows> rows_;
};

// One thread at a time may call it. Destroying it stops the threads, one of
// which may end what it is reading first.
class Loader {
 public:
  // Masks may need no other facts than those of the rows.
  static Result<Loader> open(std::unique_ptr<DocumentSource> source,
                             const LoaderOptions& options,
                             const StreamPosition& from = {});
  // Of rows that are packed already: a file that load_rows() takes, or a folder
  // of such, by name. What the files are is checked here, a row when it is
  // read. Goes on from positions of its own. Its report is of no documents.
  static Result<Loader> open_rows(const std::string& path,
                                  const BatchOptions& options,
                                  const StreamPosition& from = {});
  Loader(Loader&&) noexcept;
  Loader& operator=(Loader&&) noexcept;
  ~Loader();

  // The next batch; none after the last. An error comes after the batches that
  // were made before it, and again from then on.
  Result<std::optional<LoadedBatch>> next();
  // Whether next() has an answer; waits for it so long at most.
  bool ready(int64_t milliseconds) const;
  // Of the last batch that was handed out, and at the end of all documents;
  // where it was opened before any. next() writes over them.
  const StreamPosition& position() const;
  const StreamReport& report() const;
  const RowShape& shape() const;
  // What is given here serves batches to come. It may outlive the loader.
  std::shared_ptr<SpareRows> spare() const;
  // Its threads, in which its source runs too: none of them may end it, nor
  // wait for it.
  std::vector<std::thread::id> threads() const;

 private:
  struct State;
  explicit Loader(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

// Documents from an Arrow C stream: what pyarrow, Polars, DuckDB and others
// hand over, with no Arrow library here and no copy on the way.
//
//   auto source = open_arrow_stream(&stream);  // takes it over
//   auto rows = RowStream::open(std::move(*source), options);

// A row a document, with the columns of open_json_lines: lists, large lists or
// lists of a fixed size, of integers of any width and sign (of bools too for
// loss_mask), pairs as lists of lists; plain or dictionary-encoded; a null is a
// field that the document lacks. Takes the stream over, and releases it also
// where it is refused. Batches are checked as far as the interface lets: it
// does not tell how long a buffer is. A stream goes forward only: it can be
// sought to a position that it has not passed. `name` is how errors call it.
Result<std::unique_ptr<DocumentSource>> open_arrow_stream(
    ArrowArrayStream* stream, std::string name = "the stream");

}  // namespace tessera
