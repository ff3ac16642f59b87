// tessera/arrow.h: documents from an Arrow C stream: what pyarrow, Polars,
// DuckDB and others hand over, with no Arrow library here and no copy on the
// way. The three structs are Arrow's public binary interface; a program that
// has them already keeps its own.
//
//   auto source = open_arrow_stream(&stream);  // takes it over
//   auto rows = RowStream::open(std::move(*source), options);
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tessera/documents.h"
#include "tessera/result.h"

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
