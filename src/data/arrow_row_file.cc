// data/arrow_row_file.cc: packed rows in a Parquet or Arrow IPC file.
#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/descriptor.h"
#include "base/fail.h"
#include "base/files.h"
#include "base/text.h"
#include "data/arrow_component.h"
#include "data/arrow_documents.h"
#include "data/export_rows.h"
#include "data/import_rows.h"

namespace tessera {
namespace {

TesseraArrowFormat format_of(std::string_view path) {
  const std::string ending = data::ending_of(path);
  if (ending == ".parquet") return TesseraArrowFormat::parquet;
  return ending == ".arrows" ? TesseraArrowFormat::ipc_stream
                             : TesseraArrowFormat::ipc_file;
}

// The columns of a file that are columns of rows, from a row on.
Result<ArrowArrayStream> rows_of_file(const std::string& path,
                                      int64_t first_row) {
  return data::open_arrow_columns(
      path, first_row, 1, "rows", [](std::string_view name) {
        const auto specs = row_columns();
        return std::any_of(specs.begin(), specs.end(),
                           [&](const auto& s) { return s.name == name; });
      });
}

}  // namespace

Result<std::unique_ptr<data::RowBatches>> data::open_row_file(
    const std::string& path, int64_t first_row) {
  auto stream = rows_of_file(path, first_row);
  if (!stream) return stream.error();
  return open_row_batches(*stream, path, first_row);
}

Result<Rows> data::load_row_file(const std::string& path) {
  auto stream = rows_of_file(path, 0);
  if (!stream) return stream.error();
  return import_rows(*stream, path);
}

bool is_row_file(std::string_view path) { return data::is_arrow_file(path); }

Result<void> check_row_file(const std::string& path) {
  if (!is_row_file(path)) {
    return invalid("data",
                   "rows in one file must be .parquet, .arrow, .arrows, "
                   ".feather or .ipc, found {}",
                   in_quotes(path));
  }
  if (auto component = data::arrow_component(); !component) {
    return component.error();
  }
  return check_output(path);
}

namespace {

// `open` makes the stream of the file's contents.
Result<void> write_stream(
    const std::string& path,
    const std::function<void(std::optional<Error>&, ArrowArrayStream*)>& open) {
  auto component = data::arrow_component();
  if (!component) return component.error();
  return write_file_by(path, [&](int file) -> Result<void> {
    // The component closes the descriptor that it gets, so it gets a copy.
    const int own = ::fcntl(file, F_DUPFD_CLOEXEC, 0);
    if (own < 0) {
      return io_error("data", "rows must be written, found '{}' for {}",
                      reason(errno), in_quotes(path));
    }
    std::optional<Error> error;
    ArrowArrayStream stream = {};
    open(error, &stream);
    TesseraArrowWhy why = {};
    const int code = (*component)->write(own, format_of(path), &stream, &why);
    if (stream.release != nullptr) stream.release(&stream);
    if (error) return *error;
    if (code == 0) return {};
    return io_error("data", "rows must be written, found {} for {}",
                    in_quotes(why.text, sizeof(why.text)), in_quotes(path));
  });
}

}  // namespace

Result<void> save_row_file(const std::string& path,
                           std::function<Result<Rows>()> next) {
  if (auto e = check_row_file(path); !e) return e;
  auto first = next();
  if (!first) return first.error();
  return write_stream(path, [&](std::optional<Error>& error,
                                ArrowArrayStream* stream) {
    data::export_rows(std::move(*first), std::move(next), path, error, stream);
  });
}

Result<void> data::write_row_file(const std::string& path, const Rows& rows) {
  if (auto e = check_row_file(path); !e) return e;
  return write_stream(
      path, [&](std::optional<Error>& error, ArrowArrayStream* stream) {
        export_borrowed_rows(rows, path, error, stream);
      });
}

}  // namespace tessera
