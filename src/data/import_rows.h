// data/import_rows.h: reads packed rows from an Arrow C stream.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tessera/data.h"
#include "tessera/documents.h"

namespace tessera::data {

// Rows in batches.
class RowBatches {
 public:
  virtual ~RowBatches() = default;
  // The shape of all rows; known before a row is read.
  virtual const RowShape& shape() const = 0;
  virtual int32_t pad_id() const = 0;
  // The next rows; no rows after the last.
  virtual Result<Rows> next() = 0;
  // The number of all rows of the file, if its header says it; else -1.
  virtual int64_t rows() const { return -1; }
};

// Reads any stream: its arrays are checked before they are read, and every row
// is checked. A column that is missing is filled; a required one is an error.
// Takes over the stream. Errors use `name`, and count rows from `first_row`.
Result<std::unique_ptr<RowBatches>> open_row_batches(ArrowArrayStream& stream,
                                                     std::string name,
                                                     int64_t first_row);
// Reads all rows of the stream.
Result<Rows> import_rows(ArrowArrayStream& stream, const std::string& name);

// The same for a Parquet or Arrow IPC file; the first one starts at a row.
Result<std::unique_ptr<RowBatches>> open_row_file(const std::string& path,
                                                  int64_t first_row);
Result<Rows> load_row_file(const std::string& path);
// Writes a file with these rows, which are not copied.
Result<void> write_row_file(const std::string& path, const Rows& rows);

}  // namespace tessera::data
