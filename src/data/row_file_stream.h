// data/row_file_stream.h: a stream of the rows of packed files, one file after
// another, with the interface that a loader uses of a RowStream.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "data/row_files.h"
#include "tessera/documents.h"

namespace tessera::data {

class RowFileStream {
 public:
  // Checks the files before any work, and reads the first rows. Other rows are
  // checked when they are read.
  static Result<RowFileStream> open(const std::string& path,
                                    const StreamPosition& from);

  // The next `rows` rows: fewer at the end, then none. Reuses `spare`'s memory.
  Result<Rows> next(int64_t rows, Rows spare);
  // The position's source is a file and a row in it; counts stay 0.
  const StreamPosition& position() const { return at_; }
  const RowShape& shape() const { return paths_.shape; }
  StreamReport report() const { return {}; }  // empty: no documents are read

 private:
  Result<void> go_to(const StreamPosition& from);
  // Reads rows from `file_` and `row_` on; false if there are no more.
  Result<bool> hold();

  RowPaths paths_;
  StreamPosition at_;
  size_t file_ = 0;
  int64_t row_ = 0;  // of that file: the next row to return
  std::unique_ptr<RowBatches> batches_;
  Rows held_;
  int64_t used_ = 0;  // of `held_`
};

}  // namespace tessera::data
