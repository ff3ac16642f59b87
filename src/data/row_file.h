// data/row_file.h: packed rows in a .safetensors file, a tensor a column.
#pragma once

#include <string>
#include <string_view>

#include "base/safetensors.h"
#include "tessera/data.h"

namespace tessera::data {

// check_rows of rows of which the first is the file's row `first`.
Result<void> check_rows_from(int64_t first, const Rows& rows,
                             std::string_view file);

// Whether rows of this shape may be made.
Result<void> check_size(const RowShape& shape, int64_t rows);

// Columns of a file as rows; those that it lacks are filled, a required one is
// an error. Every row is checked. `file` is how errors call it.
Result<Rows> rows_of(const Safetensors& file, std::string_view name);

// The bytes of a file. Columns that hold padding alone and are not required
// are left out: rows_of fills them again.
Result<std::string> encode_rows(const Rows& rows);

}  // namespace tessera::data
