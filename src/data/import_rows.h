// data/import_rows.h: packed rows from an Arrow C stream, as export_rows gives
// them.
#pragma once

#include <string>

#include "tessera/arrow.h"
#include "tessera/data.h"

namespace tessera::data {

// All rows of a stream whose arrays were checked in full. Columns that it lacks
// are filled, a required one is an error; every row is checked. Takes the
// stream over. `name` is how errors call it.
Result<Rows> import_rows(ArrowArrayStream& stream, const std::string& name);

// Of a Parquet or Arrow IPC file.
Result<Rows> load_row_file(const std::string& path);

}  // namespace tessera::data
