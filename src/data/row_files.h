// data/row_files.h: the rows of a file, or of a folder of files, by number; of
// the files one is in memory at a time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/data.h"

namespace tessera::data {

class RowFiles {
 public:
  // A file that load_rows() takes, or a folder whose such files are taken by
  // name. All are read once, so that a bad one is found before any work.
  static Result<RowFiles> open(const std::string& path);

  int64_t rows() const { return first_.back(); }
  int64_t tokens() const { return tokens_; }
  // Rows [first, first + count), and after the last the first again.
  Result<Rows> take(int64_t first, int64_t count);

 private:
  Result<void> load(size_t file);

  std::vector<std::string> files_;
  std::vector<int64_t> first_ = {0};  // row of each file, and all
  int64_t tokens_ = 0;
  size_t loaded_ = 0;
  Rows rows_;  // of the loaded file
};

}  // namespace tessera::data
