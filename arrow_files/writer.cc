// arrow_files/writer.cc: writes record batches to Parquet and Arrow IPC files,
// one in memory at a time.
#include "arrow_files/writer.h"

#include <arrow/io/interfaces.h>
#include <arrow/ipc/writer.h>
#include <arrow/table.h>
#include <arrow/type.h>
#include <parquet/arrow/writer.h>
#include <parquet/properties.h>

#include <memory>

#include "arrow_files/reader.h"

namespace tessera::arrow_files {
namespace {

arrow::Status write_parquet(const std::shared_ptr<arrow::io::OutputStream>& to,
                            arrow::RecordBatchReader& from) {
  const auto properties = parquet::WriterProperties::Builder()
                              .memory_pool(pool())
                              ->compression(arrow::Compression::ZSTD)
                              ->build();
  // Without the schema, lists would be read back without their fixed sizes.
  const auto more =
      parquet::ArrowWriterProperties::Builder().store_schema()->build();
  ARROW_ASSIGN_OR_RAISE(
      auto writer, parquet::arrow::FileWriter::Open(*from.schema(), pool(), to,
                                                    properties, more));
  while (true) {
    ARROW_ASSIGN_OR_RAISE(const auto batch, from.Next());
    if (!batch) break;
    ARROW_ASSIGN_OR_RAISE(const auto table,
                          arrow::Table::FromRecordBatches({batch}));
    ARROW_RETURN_NOT_OK(writer->WriteTable(*table, batch->num_rows()));
  }
  return writer->Close();
}

arrow::Status write_ipc(const std::shared_ptr<arrow::io::OutputStream>& to,
                        bool is_stream, arrow::RecordBatchReader& from) {
  ARROW_ASSIGN_OR_RAISE(
      auto writer, is_stream ? arrow::ipc::MakeStreamWriter(to, from.schema())
                             : arrow::ipc::MakeFileWriter(to, from.schema()));
  while (true) {
    ARROW_ASSIGN_OR_RAISE(const auto batch, from.Next());
    if (!batch) return writer->Close();
    ARROW_RETURN_NOT_OK(writer->WriteRecordBatch(*batch));
  }
}

}  // namespace

arrow::Status write_file(const std::shared_ptr<arrow::io::OutputStream>& to,
                         TesseraArrowFormat format,
                         arrow::RecordBatchReader& from) {
  ARROW_RETURN_NOT_OK(
      format == TesseraArrowFormat::parquet
          ? write_parquet(to, from)
          : write_ipc(to, format == TesseraArrowFormat::ipc_stream, from));
  return to->Close();
}

}  // namespace tessera::arrow_files
