// data/row_file.h: packed rows in a .safetensors file, a tensor a column.
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

// check_rows of rows of which the first is the file's row `first`.
Result<void> check_rows_from(int64_t first, const Rows& rows,
                             std::string_view file);

// Numbers in a row of a shape that check_size takes: below 2^29.
int64_t numbers_of_row(const RowShape& shape);
// Whether rows of this shape may be made. `name` is what errors end in.
Result<void> check_size(const RowShape& shape, int64_t rows,
                        std::string_view name = "them");
// Whether a column that a file lacks may be filled: a stranger's number is no
// reason to make room, so room above the usual comes with its column.
Result<void> check_filled(const RowShape& shape, RowColumn column,
                          std::string_view name);
// A number of 32 bits in a file's metadata, which may lack it.
using Metadata = std::map<std::string, std::string, std::less<>>;
Result<int64_t> number_of(const Metadata& metadata, std::string_view key,
                          int64_t otherwise, std::string_view name);

// Rows of a file, from a row on: columns that it lacks are filled, a required
// one is an error. Every row is checked. Some rows are in memory at a time.
Result<std::unique_ptr<RowBatches>> open_safetensors_rows(
    const std::string& path, int64_t first_row);
Result<Rows> load_safetensors_rows(const std::string& path);
// All rows of a file that is in memory. `name` is how errors call it.
Result<Rows> decode_rows(std::string_view bytes, std::string_view name);

// The bytes of a file: every column, so that all files have one schema.
Result<std::string> encode_rows(const Rows& rows);

}  // namespace tessera::data
