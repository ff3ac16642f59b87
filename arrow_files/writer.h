// arrow_files/writer.h: writes record batches to Parquet and Arrow IPC files.
#pragma once

#include <arrow/io/interfaces.h>
#include <arrow/record_batch.h>
#include <arrow/status.h>

#include <memory>

#include "data/arrow_component.h"

namespace tessera::arrow_files {

// Writes a row group, or a record batch, for each batch of the reader.
arrow::Status write_file(const std::shared_ptr<arrow::io::OutputStream>& to,
                         TesseraArrowFormat format,
                         arrow::RecordBatchReader& from);

}  // namespace tessera::arrow_files
