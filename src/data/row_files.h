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

// Of like rows.
struct RowPaths {
  std::vector<std::string> files;
  RowShape shape;
  int32_t pad_id = 0;

  // A file that load_rows() takes, or a folder whose such files are taken by
  // name. What each is told to hold is looked at; no row is read.
  static Result<RowPaths> find(const std::string& path);
};

// Rows of one file, from a row on.
Result<std::unique_ptr<RowBatches>> open_row_batches(const std::string& path,
                                                     int64_t first_row);
// Adds `count` of them to others of their shape.
void append_rows(const Rows& from, int64_t first, int64_t count, Rows& to);
Error no_rows(const std::string& path);

class RowFiles {
 public:
  // All are read once, so that a bad one is found before any work.
  static Result<RowFiles> open(const std::string& path);

  int64_t rows() const { return first_.back(); }
  int64_t tokens() const { return paths_.shape.tokens; }
  int64_t held() const { return held_.rows; }  // in memory
  // Rows [first, first + count), and after the last the first again.
  Result<Rows> take(int64_t first, int64_t count);

 private:
  // Those from `row` on.
  Result<void> hold(int64_t row);
  Result<Rows> read(size_t file, int64_t row);

  RowPaths paths_;
  std::vector<int64_t> first_ = {0};  // row of each file, and all
  Rows held_;
  int64_t held_first_ = 0;
  // Of one file, what gives the row after those that are held.
  std::unique_ptr<RowBatches> batches_;
};

}  // namespace tessera::data
