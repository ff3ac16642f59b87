// arrow_files/reader.cc: detects a file's kind; code that all kinds share.
#include "arrow_files/reader.h"

#include <arrow/type.h>

#include <string_view>

namespace tessera::arrow_files {

arrow::MemoryPool* pool() {
  // Never destroyed: arrays that were handed out may outlive everything else.
  static auto* const capped =
      new arrow::CappedMemoryPool(arrow::default_memory_pool(), kMaxBytes);
  return capped;
}

arrow::Result<Kind> kind_of(const std::string& path) {
  ARROW_ASSIGN_OR_RAISE(auto file, arrow::io::ReadableFile::Open(path, pool()));
  char bytes[6] = {};
  ARROW_ASSIGN_OR_RAISE(const int64_t n, file->Read(sizeof(bytes), bytes));
  const std::string_view begin(bytes, static_cast<size_t>(n));
  if (begin.starts_with("PAR1")) return Kind::parquet;
  if (begin == "ARROW1") return Kind::ipc_file;
  if (begin.starts_with("\xff\xff\xff\xff")) return Kind::ipc_stream;
  return arrow::Status::Invalid(
      "neither Parquet nor Arrow IPC by its first bytes");
}

arrow::Result<std::shared_ptr<arrow::Schema>> schema_of(
    const std::string& path) {
  ARROW_ASSIGN_OR_RAISE(const Kind kind, kind_of(path));
  return kind == Kind::parquet ? parquet_schema(path) : ipc_schema(path, kind);
}

arrow::Result<std::shared_ptr<arrow::RecordBatchReader>> read_file(
    const std::string& path, const Wanted& wanted) {
  ARROW_ASSIGN_OR_RAISE(const auto schema, schema_of(path));
  for (const int column : wanted.columns) {
    if (column >= 0 && column < schema->num_fields()) continue;
    return arrow::Status::Invalid("the file has no column ", column);
  }
  ARROW_ASSIGN_OR_RAISE(const Kind kind, kind_of(path));
  return kind == Kind::parquet ? read_parquet(path, wanted)
                               : read_ipc(path, kind, wanted);
}

}  // namespace tessera::arrow_files
