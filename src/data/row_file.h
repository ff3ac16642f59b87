// data/row_file.h: packed rows in a .safetensors file, one tensor per column.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "base/safetensors.h"
#include "data/import_rows.h"
#include "tessera/data.h"

namespace tessera::data {

// check_rows() for rows that begin at row `first` of the file.
Result<void> check_rows_from(int64_t first, const Rows& rows,
                             std::string_view file);

// Numbers in a row; below 2^29 for a shape that check_size() accepts.
int64_t numbers_of_row(const RowShape& shape);
// Whether rows of this shape may be made. Errors end in `name`.
Result<void> check_size(const RowShape& shape, int64_t rows,
                        std::string_view name = "them");
// Whether a column that a file lacks may be filled. Metadata is untrusted, so a
// column of more than the usual size must be in the file.
Result<void> check_filled(const RowShape& shape, RowColumn column,
                          std::string_view name);
// A 32-bit integer in a file's metadata, or `otherwise` if it is absent.
using Metadata = std::map<std::string, std::string, std::less<>>;
Result<int64_t> number_of(const Metadata& metadata, std::string_view key,
                          int64_t otherwise, std::string_view name);

// Rows of a file from a row on, some in memory at a time. Every row is checked.
// A column that is missing is filled; a required one is an error.
Result<std::unique_ptr<RowBatches>> open_safetensors_rows(
    const std::string& path, int64_t first_row);
Result<Rows> load_safetensors_rows(const std::string& path);
// Reads all rows of a file that is in memory. Errors call it `name`.
Result<Rows> decode_rows(std::string_view bytes, std::string_view name);

// The bytes of a file with every column, so that all files have one schema.
Result<std::string> encode_rows(const Rows& rows);

}  // namespace tessera::data
