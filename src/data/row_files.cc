// data/row_files.cc: reads packed rows of many files by number.
#include "data/row_files.h"

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/fail.h"
#include "base/files.h"
#include "base/safetensors.h"
#include "base/text.h"
#include "data/arrow_documents.h"
#include "data/row_file.h"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;

// An error if the file is not packed rows, for example documents. A file that
// cannot be opened passes: reading it gives the error.
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

// A copy of a file in another format would be read as additional rows.
Result<void> check_names(const std::vector<std::string>& files) {
  std::map<std::string, std::string> by_stem;
  for (const std::string& file : files) {
    const auto [at, is_new] =
        by_stem.emplace(fs::path(file).stem().string(), file);
    if (is_new) continue;
    return invalid("data",
                   "a folder of rows must have each file in one format, found "
                   "{} and {}",
                   in_quotes(at->second), in_quotes(file));
  }
  return {};
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
    // An empty subfolder is left if a run ends while it removes the subfolder.
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
  if (auto e = check_names(out); !e) return e.error();
  return out;
}

// The first file decides the shape and the pad id of all.
Result<void> check_like(const RowBatches& rows, const std::string& path,
                        const RowPaths& others) {
  const RowShape& shape = rows.shape();
  const RowShape& first = others.shape;
  if (shape.tokens != first.tokens) {
    return invalid("data",
                   "files of rows must have the same tokens, found {} for {} "
                   "and {} for {}",
                   shape.tokens, in_quotes(path), first.tokens,
                   in_quotes(others.files[0]));
  }
  if (shape != first) {
    return invalid(
        "data",
        "files of rows must have room for the same chunks and edges, "
        "found {} and {} for {}, {} and {} for {}",
        shape.max_chunks, shape.max_edges, in_quotes(path), first.max_chunks,
        first.max_edges, in_quotes(others.files[0]));
  }
  if (rows.pad_id() == others.pad_id) return {};
  return invalid("data",
                 "files of rows must have the same pad id, found {} for {} and "
                 "{} for {}",
                 rows.pad_id(), in_quotes(path), others.pad_id,
                 in_quotes(others.files[0]));
}

// Reads all rows of a file, and returns how many there are.
Result<int64_t> count_rows(const std::string& path) {
  auto batches = open_row_batches(path, 0);
  if (!batches) return batches.error();
  int64_t rows = 0;
  while (true) {
    auto some = (*batches)->next();
    if (!some) return some.error();
    rows += some->rows;
    if (some->rows == 0) return rows;
  }
}

}  // namespace

Result<std::unique_ptr<RowBatches>> open_row_batches(const std::string& path,
                                                     int64_t first_row) {
  return is_arrow_file(path) ? open_row_file(path, first_row)
                             : open_safetensors_rows(path, first_row);
}

void append_rows(const Rows& from, int64_t first, int64_t count, Rows& to) {
  for (size_t c = 0; c < kRowColumns; ++c) {
    const int64_t each = from.shape.size(static_cast<RowColumn>(c));
    const auto begin = from.columns[c].begin() + first * each;
    to.columns[c].insert(to.columns[c].end(), begin, begin + count * each);
  }
  to.rows += count;
}

Error no_rows(const std::string& path) {
  return invalid("data", "there must be a row, found none for {}",
                 in_quotes(path));
}

Result<RowPaths> RowPaths::find(const std::string& path) {
  auto files = files_of(path);
  if (!files) return files.error();
  RowPaths out;
  for (std::string& file : *files) {
    auto rows = open_row_batches(file, 0);
    if (!rows) return rows.error();
    if (out.files.empty()) {
      out.shape = (*rows)->shape();
      out.pad_id = (*rows)->pad_id();
    } else if (auto e = check_like(**rows, file, out); !e) {
      return e.error();
    }
    out.files.push_back(std::move(file));
  }
  return out;
}

Result<RowFiles> RowFiles::open(const std::string& path) {
  auto paths = RowPaths::find(path);
  if (!paths) return paths.error();
  RowFiles out;
  for (const std::string& file : paths->files) {
    auto rows = count_rows(file);
    if (!rows) return rows.error();
    out.first_.push_back(out.first_.back() + *rows);
  }
  out.paths_ = std::move(*paths);
  if (out.rows() == 0) return no_rows(path);
  return out;
}

Result<Rows> RowFiles::read(size_t file, int64_t row) {
  const bool follows = batches_ && row == held_first_ + held_.rows &&
                       held_first_ >= first_[file];
  if (!follows) {
    auto opened = open_row_batches(paths_.files[file], row - first_[file]);
    if (!opened) return opened.error();
    batches_ = std::move(*opened);
  }
  auto rows = batches_->next();
  if (!rows) batches_ = nullptr;  // it may be past the rows that failed
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
      rows->shape != paths_.shape || rows->pad_id != paths_.pad_id) {
    batches_ = nullptr;
    return invalid("data",
                   "a file must stay as it was, found {} rows for {} of {}",
                   says >= 0 ? says : end - first_[file], all,
                   in_quotes(paths_.files[file]));
  }
  held_ = std::move(*rows);
  held_first_ = row;
  return {};
}

Result<Rows> RowFiles::take(int64_t first, int64_t count) {
  Rows out{paths_.shape, 0, paths_.pad_id, {}};
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = (first + i) % rows();
    if (row < held_first_ || row >= held_first_ + held_.rows) {
      if (auto e = hold(row); !e) return e.error();
    }
    append_rows(held_, row - held_first_, 1, out);
  }
  return out;
}

}  // namespace tessera::data
