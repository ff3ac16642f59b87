// data/row_files.h: the rows of a file, or of a folder of files, by number. One
// batch of rows is in memory at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/import_rows.h"
#include "tessera/data.h"

namespace tessera::data {

// The subfolder of a folder of rows that holds files still being written.
inline constexpr std::string_view kUnfinished = ".unfinished";

// Files whose rows have one shape.
struct RowPaths {
  std::vector<std::string> files;
  RowShape shape;
  int32_t pad_id = 0;

  // The path is a file that load_rows() accepts, or a folder of such files,
  // sorted by name. Reads and compares the files' headers, but no rows.
  static Result<RowPaths> find(const std::string& path);
};

// The rows of one file, from a row on.
Result<std::unique_ptr<RowBatches>> open_row_batches(const std::string& path,
                                                     int64_t first_row);
// Appends `count` rows to rows of the same shape.
void append_rows(const Rows& from, int64_t first, int64_t count, Rows& to);
Error no_rows(const std::string& path);

class RowFiles {
 public:
  // Reads all rows once, so that a bad row is found before any work.
  static Result<RowFiles> open(const std::string& path);

  int64_t rows() const { return first_.back(); }
  int64_t tokens() const { return paths_.shape.tokens; }
  int64_t held() const { return held_.rows; }  // in memory
  // Rows [first, first + count); after the last row it starts over.
  Result<Rows> take(int64_t first, int64_t count);

 private:
  // Reads the rows from `row` on.
  Result<void> hold(int64_t row);
  Result<Rows> read(size_t file, int64_t row);

  RowPaths paths_;
  std::vector<int64_t> first_ = {0};  // each file's first row; the total
  Rows held_;
  int64_t held_first_ = 0;
  // Of one file; its next rows follow those in `held_`.
  std::unique_ptr<RowBatches> batches_;
};

}  // namespace tessera::data
