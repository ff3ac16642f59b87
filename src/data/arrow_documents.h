// data/arrow_documents.h: documents from an Arrow C stream: a stranger's, or
// that of a file.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "tessera/documents.h"

namespace tessera::data {

// What a stream is called in errors, and where it begins.
struct ArrowOrigin {
  std::string name;
  // Of a file: then errors count rows from its beginning, and positions too.
  bool is_file = false;
  int64_t first_row = 0;
};

Result<std::unique_ptr<DocumentSource>> open_arrow_documents(
    ArrowArrayStream& stream, ArrowOrigin origin);

// ".parquet" of "a/B.Parquet"; nothing where there is no dot.
std::string ending_of(std::string_view path);
// Whether a file of this name is Parquet or Arrow IPC.
bool is_arrow_file(std::string_view path);
// Some columns of one such file, from a row on, by so many threads. `wanted` is
// asked of each name; one that is there twice stays so, to be refused for it.
// `what` must have the column input_ids: "documents".
Result<ArrowArrayStream> open_arrow_columns(
    const std::string& path, int64_t first_row, int64_t workers,
    std::string_view what,
    const std::function<bool(std::string_view name)>& wanted);
// That it is no file of packed rows, by its columns. One whose columns cannot
// be read is told where it is opened.
Result<void> refuse_row_columns(const std::string& path);
// Rows of one such file from a row on, by so many threads. Columns that no row
// has a place for are not read; their names are added to `ignored`.
Result<std::unique_ptr<DocumentSource>> open_arrow_file(
    const std::string& path, int64_t first_row, int64_t workers,
    std::set<std::string>& ignored);

}  // namespace tessera::data
