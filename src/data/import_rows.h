// data/import_rows.h: packed rows from an Arrow C stream, as export_rows gives
// them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tessera/data.h"
#include "tessera/documents.h"

namespace tessera::data {

// Rows a batch of a stream at a time.
class RowBatches {
 public:
  virtual ~RowBatches() = default;
  // Of all its rows, before any is read.
  virtual const RowShape& shape() const = 0;
  virtual int32_t pad_id() const = 0;
  // Some rows; none after the last.
  virtual Result<Rows> next() = 0;
  // All of the file's, where it begins with their number; else -1.
  virtual int64_t rows() const { return -1; }
};

// Of any stream: all that the interface tells of its arrays is checked before
// they are read. Columns that it lacks are filled, a required one is an error;
// every row is checked. Takes the stream over. `name` is how errors call it,
// `first_row` what they call its first.
Result<std::unique_ptr<RowBatches>> open_row_batches(ArrowArrayStream& stream,
                                                     std::string name,
                                                     int64_t first_row);
// All of its rows.
Result<Rows> import_rows(ArrowArrayStream& stream, const std::string& name);

// The same of a Parquet or Arrow IPC file, from a row on.
Result<std::unique_ptr<RowBatches>> open_row_file(const std::string& path,
                                                  int64_t first_row);
Result<Rows> load_row_file(const std::string& path);
// Such a file of these rows alone, which are not copied.
Result<void> write_row_file(const std::string& path, const Rows& rows);

}  // namespace tessera::data
