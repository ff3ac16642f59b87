// data/save_row_file.cc: packed rows to one Parquet or Arrow IPC file.
#include <fcntl.h>

#include <cerrno>
#include <utility>

#include "base/descriptor.h"
#include "base/fail.h"
#include "base/files.h"
#include "base/text.h"
#include "data/arrow_component.h"
#include "data/arrow_documents.h"
#include "data/export_rows.h"

namespace tessera {
namespace {

TesseraArrowFormat format_of(std::string_view path) {
  if (path.ends_with(".parquet")) return TesseraArrowFormat::parquet;
  return path.ends_with(".arrows") ? TesseraArrowFormat::ipc_stream
                                   : TesseraArrowFormat::ipc_file;
}

}  // namespace

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

Result<void> save_row_file(const std::string& path,
                           std::function<Result<Rows>()> next) {
  if (auto e = check_row_file(path); !e) return e;
  auto component = data::arrow_component();
  if (!component) return component.error();
  auto first = next();
  if (!first) return first.error();
  return write_file_by(path, [&](int file) -> Result<void> {
    // The component closes what it is given.
    const int own = ::fcntl(file, F_DUPFD_CLOEXEC, 0);
    if (own < 0) {
      return io_error("data", "rows must be written, found '{}' for {}",
                      reason(errno), in_quotes(path));
    }
    std::optional<Error> error;
    ArrowArrayStream stream = {};
    data::export_rows(std::move(*first), std::move(next), error, &stream);
    TesseraArrowWhy why = {};
    const int code = (*component)->write(own, format_of(path), &stream, &why);
    if (stream.release != nullptr) stream.release(&stream);
    if (error) return *error;
    if (code == 0) return {};
    return io_error("data", "rows must be written, found {} for {}",
                    in_quotes(why.text, sizeof(why.text)), in_quotes(path));
  });
}

}  // namespace tessera
