// data/row_file_stream.h: the rows of files that were packed before, one after
// another. To a loader it is what a RowStream is.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "data/row_files.h"
#include "tessera/documents.h"

namespace tessera::data {

class RowFileStream {
 public:
  // What the files are is told before any work, a row that does not hold when
  // it is read: the first is read here.
  static Result<RowFileStream> open(const std::string& path,
                                    const StreamPosition& from);

  // The next `rows` rows, fewer at the end, none after it. The memory of
  // `spare` serves again.
  Result<Rows> next(int64_t rows, Rows spare);
  // Its source is a file and a row of it; nothing is counted.
  const StreamPosition& position() const { return at_; }
  const RowShape& shape() const { return paths_.shape; }
  StreamReport report() const { return {}; }  // of no documents

 private:
  Result<void> go_to(const StreamPosition& from);
  // Some rows from `file_` and `row_` on; false where there are no more.
  Result<bool> hold();

  RowPaths paths_;
  StreamPosition at_;
  size_t file_ = 0;
  int64_t row_ = 0;  // of that file, the next to hand out
  std::unique_ptr<RowBatches> batches_;
  Rows held_;
  int64_t used_ = 0;  // of those held
};

}  // namespace tessera::data
