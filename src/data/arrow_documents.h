// data/arrow_documents.h: documents from an Arrow C stream, which comes from a
// caller or from a file.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "tessera/documents.h"

namespace tessera::data {

// What errors call a stream, and where it begins.
struct ArrowOrigin {
  std::string name;
  // If set, errors and positions count rows from the beginning of the file.
  bool is_file = false;
  int64_t first_row = 0;
};

Result<std::unique_ptr<DocumentSource>> open_arrow_documents(
    ArrowArrayStream& stream, ArrowOrigin origin);

// The extension in lower case, ".parquet" for "a/B.Parquet"; "" without a dot.
std::string ending_of(std::string_view path);
// Whether a file of this name is Parquet or Arrow IPC.
bool is_arrow_file(std::string_view path);
// Reads columns of a Parquet or Arrow file from a row on, with `workers`
// threads. `wanted` selects columns by name; a name that occurs twice is
// selected twice, so that it is refused later. Errors call the contents `what`
// ("documents"); the column input_ids is required.
Result<ArrowArrayStream> open_arrow_columns(
    const std::string& path, int64_t first_row, int64_t workers,
    std::string_view what,
    const std::function<bool(std::string_view name)>& wanted);
// An error if the file's columns are those of packed rows. A file whose columns
// cannot be read passes: opening it reports the error.
Result<void> refuse_row_columns(const std::string& path);
// Documents of one such file from a row on, read by `workers` threads. Other
// columns are not read; their names are added to `ignored`.
Result<std::unique_ptr<DocumentSource>> open_arrow_file(
    const std::string& path, int64_t first_row, int64_t workers,
    std::set<std::string>& ignored);

}  // namespace tessera::data
