// data/row_files.h: the rows of a file, or of a folder of files, by number. In
// memory is one batch of them at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/import_rows.h"
#include "tessera/data.h"

namespace tessera::data {

// Within a folder of rows, what is still being written.
inline constexpr std::string_view kUnfinished = ".unfinished";

class RowFiles {
 public:
  // A file that load_rows() takes, or a folder whose such files are taken by
  // name. All are read once, so that a bad one is found before any work.
  static Result<RowFiles> open(const std::string& path);

  int64_t rows() const { return first_.back(); }
  int64_t tokens() const { return shape_.tokens; }
  int64_t held() const { return held_.rows; }  // in memory
  // Rows [first, first + count), and after the last the first again.
  Result<Rows> take(int64_t first, int64_t count);

 private:
  Result<void> check_shape(const RowShape& shape, const std::string& path);
  // All rows of a file once; how many.
  Result<int64_t> count(const std::string& path);
  Result<void> add(const std::string& path);
  // Those from `row` on.
  Result<void> hold(int64_t row);
  Result<Rows> read(size_t file, int64_t row);

  std::vector<std::string> files_;
  std::vector<int64_t> first_ = {0};  // row of each file, and all
  RowShape shape_;
  Rows held_;
  int64_t held_first_ = 0;
  // Of one file, what gives the row after those that are held.
  std::unique_ptr<RowBatches> batches_;
};

}  // namespace tessera::data
