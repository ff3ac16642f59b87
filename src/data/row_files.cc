// data/row_files.cc: packed rows from many files.
#include "data/row_files.h"

#include <algorithm>
#include <filesystem>

#include "base/fail.h"
#include "base/text.h"
#include "data/arrow_documents.h"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;

Result<std::vector<std::string>> files_of(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return std::vector<std::string>{path};
  std::vector<std::string> out;
  for (fs::directory_iterator at(path, error), end; !error && at != end;
       at.increment(error)) {
    std::string name = at->path().string();
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

}  // namespace

Result<void> RowFiles::load(size_t file) {
  auto rows = load_rows(files_[file]);
  if (!rows) return rows.error();
  rows_ = std::move(*rows);
  loaded_ = file;
  return {};
}

Result<RowFiles> RowFiles::open(const std::string& path) {
  auto files = files_of(path);
  if (!files) return files.error();
  RowFiles out;
  out.files_ = std::move(*files);
  for (size_t i = 0; i < out.files_.size(); ++i) {
    if (auto e = out.load(i); !e) return e.error();
    if (i > 0 && out.rows_.shape.tokens != out.tokens_) {
      return invalid("data",
                     "files of rows must have the same tokens, found {} for {} "
                     "and {} for {}",
                     out.rows_.shape.tokens, in_quotes(out.files_[i]),
                     out.tokens_, in_quotes(out.files_[0]));
    }
    out.tokens_ = out.rows_.shape.tokens;
    out.first_.push_back(out.first_.back() + out.rows_.rows);
  }
  if (out.rows() == 0) {
    return invalid("data", "there must be a row, found none for {}",
                   in_quotes(path));
  }
  return out;
}

Result<Rows> RowFiles::take(int64_t first, int64_t count) {
  Rows out;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = (first + i) % rows();
    const auto after = std::upper_bound(first_.begin(), first_.end(), row);
    const auto file = static_cast<size_t>(after - first_.begin()) - 1;
    if (file != loaded_) {
      const int64_t had = first_[file + 1] - first_[file];
      if (auto e = load(file); !e) return e.error();
      if (rows_.rows != had || rows_.shape.tokens != tokens_) {
        return invalid("data",
                       "a file must stay as it was, found {} rows for {} of {}",
                       rows_.rows, had, in_quotes(files_[file]));
      }
    }
    out.shape = rows_.shape;
    out.pad_id = rows_.pad_id;
    for (size_t c = 0; c < kRowColumns; ++c) {
      const auto from =
          rows_.row(static_cast<RowColumn>(c), row - first_[file]);
      out.columns[c].insert(out.columns[c].end(), from.begin(), from.end());
    }
  }
  out.rows = count;
  return out;
}

}  // namespace tessera::data
