// data/row_files.cc: packed rows from many files.
#include "data/row_files.h"

#include <algorithm>
#include <filesystem>

#include "base/fail.h"
#include "base/files.h"
#include "base/safetensors.h"
#include "base/text.h"
#include "data/arrow_documents.h"
#include "data/row_file.h"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;

// That a file is not of documents, say. One that is missing or no file is told
// where it is read.
Result<void> check_packed(const std::string& path) {
  FileReader file;
  if (is_arrow_file(path) || !file.open(path)) return {};
  const int64_t begins = std::min(file.size(), kSafetensorsStart);
  std::string start(static_cast<size_t>(begins), '\0');
  if (auto e = file.read(0, begins, start.data()); !e) return e;
  if (safetensors_header_size(start, file.size())) return {};
  return invalid(
      "data",
      "rows must be packed, as `tessera pack` makes them, found none "
      "in {}",
      in_quotes(path));
}

Result<std::vector<std::string>> files_of(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    if (auto e = check_packed(path); !e) return e.error();
    return std::vector<std::string>{path};
  }
  std::vector<std::string> out;
  for (fs::directory_iterator at(path, error), end; !error && at != end;
       at.increment(error)) {
    std::string name = at->path().string();
    // An empty one is all that a run left which ended as it took it away.
    if (at->path().filename() == kUnfinished &&
        !fs::is_empty(at->path(), error)) {
      return invalid("data",
                     "a folder of rows must be finished, found {} in {}",
                     kUnfinished, in_quotes(path));
    }
    if (name.ends_with(".safetensors") || is_arrow_file(name)) {
      out.push_back(std::move(name));
    }
  }
  if (error) {
    return invalid("data", "a folder of rows must be readable, found {} for {}",
                   error.message(), in_quotes(path));
  }
  if (out.empty()) {
    return invalid(
        "data",
        "a folder of rows must have a .safetensors, Parquet or Arrow "
        "file, found none for {}",
        in_quotes(path));
  }
  std::sort(out.begin(), out.end());
  return out;
}

Result<std::unique_ptr<RowBatches>> open_rows(const std::string& path,
                                              int64_t first_row) {
  return is_arrow_file(path) ? open_row_file(path, first_row)
                             : open_safetensors_rows(path, first_row);
}

}  // namespace

Result<void> RowFiles::check_shape(const RowShape& shape,
                                   const std::string& path) {
  if (files_.empty() || shape == shape_) {
    shape_ = shape;
    return {};
  }
  if (shape.tokens != shape_.tokens) {
    return invalid("data",
                   "files of rows must have the same tokens, found {} for {} "
                   "and {} for {}",
                   shape.tokens, in_quotes(path), shape_.tokens,
                   in_quotes(files_[0]));
  }
  return invalid("data",
                 "files of rows must have room for the same chunks and edges, "
                 "found {} and {} for {}, {} and {} for {}",
                 shape.max_chunks, shape.max_edges, in_quotes(path),
                 shape_.max_chunks, shape_.max_edges, in_quotes(files_[0]));
}

Result<int64_t> RowFiles::count(const std::string& path) {
  auto batches = open_rows(path, 0);
  if (!batches) return batches.error();
  int64_t rows = 0;
  while (true) {
    auto some = (*batches)->next();
    if (!some) return some.error();
    if (auto e = check_shape(some->shape, path); !e) return e.error();
    rows += some->rows;
    if (some->rows == 0) return rows;
  }
}

Result<void> RowFiles::add(const std::string& path) {
  auto rows = count(path);
  if (!rows) return rows.error();
  files_.push_back(path);
  first_.push_back(first_.back() + *rows);
  return {};
}

Result<RowFiles> RowFiles::open(const std::string& path) {
  auto files = files_of(path);
  if (!files) return files.error();
  RowFiles out;
  for (const std::string& file : *files) {
    if (auto e = out.add(file); !e) return e.error();
  }
  if (out.rows() == 0) {
    return invalid("data", "there must be a row, found none for {}",
                   in_quotes(path));
  }
  return out;
}

Result<Rows> RowFiles::read(size_t file, int64_t row) {
  const bool follows = batches_ && row == held_first_ + held_.rows &&
                       held_first_ >= first_[file];
  if (!follows) {
    auto opened = open_rows(files_[file], row - first_[file]);
    if (!opened) return opened.error();
    batches_ = std::move(*opened);
  }
  auto rows = batches_->next();
  if (!rows) batches_ = nullptr;  // it may be behind the rows that it lost
  return rows;
}

Result<void> RowFiles::hold(int64_t row) {
  const auto after = std::upper_bound(first_.begin(), first_.end(), row);
  const auto file = static_cast<size_t>(after - first_.begin()) - 1;
  auto rows = read(file, row);
  if (!rows) return rows.error();
  const int64_t all = first_[file + 1] - first_[file];
  const int64_t end = row + rows->rows;
  const int64_t says = batches_->rows();
  if (end <= row || end > first_[file + 1] || (says >= 0 && says != all) ||
      rows->shape != shape_) {
    batches_ = nullptr;
    return invalid(
        "data", "a file must stay as it was, found {} rows for {} of {}",
        says >= 0 ? says : end - first_[file], all, in_quotes(files_[file]));
  }
  held_ = std::move(*rows);
  held_first_ = row;
  return {};
}

Result<Rows> RowFiles::take(int64_t first, int64_t count) {
  Rows out;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = (first + i) % rows();
    if (row < held_first_ || row >= held_first_ + held_.rows) {
      if (auto e = hold(row); !e) return e.error();
    }
    out.shape = held_.shape;
    out.pad_id = held_.pad_id;
    for (size_t c = 0; c < kRowColumns; ++c) {
      const auto from = held_.row(static_cast<RowColumn>(c), row - held_first_);
      out.columns[c].insert(out.columns[c].end(), from.begin(), from.end());
    }
  }
  out.rows = count;
  return out;
}

}  // namespace tessera::data
