// arrow_files/writer.h: record batches to Parquet and Arrow IPC files.
#pragma once

#include <arrow/io/interfaces.h>
#include <arrow/record_batch.h>
#include <arrow/status.h>

#include <memory>

#include "data/arrow_component.h"

namespace tessera::arrow_files {

// A row group or a record batch in the file for each of the reader's.
arrow::Status write_file(const std::shared_ptr<arrow::io::OutputStream>& to,
                         TesseraArrowFormat format,
                         arrow::RecordBatchReader& from);

}  // namespace tessera::arrow_files
