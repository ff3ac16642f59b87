// data/row_file_stream.cc: streams packed rows of files from any row on.
#include "data/row_file_stream.h"

#include <algorithm>
#include <utility>

#include "base/fail.h"
#include "base/text.h"
#include "data/input_files.h"
#include "data/position_fields.h"

namespace tessera::data {

Result<RowFileStream> RowFileStream::open(const std::string& path,
                                          const StreamPosition& from) {
  auto paths = RowPaths::find(path);
  if (!paths) return paths.error();
  RowFileStream out;
  out.paths_ = std::move(*paths);
  // No options affect the rows; the text differs from any documents stream's.
  out.at_.options = "packed rows";
  out.at_.inputs = digest_of_files(out.paths_.files);
  const bool is_begin = from == StreamPosition{};
  if (!is_begin) {
    if (auto e = out.go_to(from); !e) return e.error();
  }
  auto some = out.hold();
  if (!some) return some.error();
  if (!*some && is_begin) return no_rows(path);
  return out;
}

Result<void> RowFileStream::go_to(const StreamPosition& from) {
  if (auto e = check_stream(from, at_); !e) return e;
  const SourcePosition& to = from.source;
  const int64_t files = std::ssize(paths_.files);
  at_.source = {to.file, to.offset, 0};
  if (to.file < 0 || to.file >= files || to.offset < 0 || from != at_) {
    return invalid("data",
                   "a position must be a row of one of {} files, found row {} "
                   "of file {}",
                   files, to.offset, to.file);
  }
  file_ = static_cast<size_t>(to.file);
  row_ = to.offset;
  return {};
}

Result<bool> RowFileStream::hold() {
  for (; file_ < paths_.files.size(); ++file_, row_ = 0) {
    const std::string& path = paths_.files[file_];
    if (!batches_) {
      auto opened = open_row_batches(path, row_);
      if (!opened) return opened.error();
      batches_ = std::move(*opened);
    }
    const int64_t all = batches_->rows();  // -1 if the header does not say it
    if (batches_->shape() != paths_.shape ||
        batches_->pad_id() != paths_.pad_id) {
      return invalid("data",
                     "a file must stay as it was, found other rows for {}",
                     in_quotes(path));
    }
    if (all >= 0 && row_ > all) {
      return invalid("data",
                     "a position must be a row of a file, found row {} for the "
                     "{} of {}",
                     row_, all, in_quotes(path));
    }
    auto rows = batches_->next();
    if (!rows) return rows.error();
    held_ = std::move(*rows);
    used_ = 0;
    if (held_.rows > 0) return true;
    batches_ = nullptr;
  }
  return false;
}

Result<Rows> RowFileStream::next(int64_t rows, Rows spare) {
  Rows out{paths_.shape, 0, paths_.pad_id, std::move(spare.columns)};
  for (std::vector<int32_t>& column : out.columns) column.clear();
  while (out.rows < rows) {
    if (used_ == held_.rows) {
      auto more = hold();
      if (!more) return more.error();
      if (!*more) break;
    }
    const int64_t n = std::min(rows - out.rows, held_.rows - used_);
    append_rows(held_, used_, n, out);
    used_ += n;
    row_ += n;
    at_.source = {static_cast<int64_t>(file_), row_, 0};
  }
  return out;
}

}  // namespace tessera::data
