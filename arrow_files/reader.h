// arrow_files/reader.h: opens Parquet and Arrow IPC files as readers of record
// batches.
#pragma once

#include <arrow/io/file.h>
#include <arrow/memory_pool.h>
#include <arrow/record_batch.h>
#include <arrow/result.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tessera::arrow_files {

// The memory that a file may take at once, whatever its metadata claims.
#ifdef TESSERA_SANITIZED
constexpr int64_t kMaxBytes = int64_t{1} << 28;  // a fuzzer has 2 GiB in all
#else
constexpr int64_t kMaxBytes = int64_t{1} << 32;
#endif
arrow::MemoryPool* pool();

enum class Kind : uint8_t { parquet, ipc_file, ipc_stream };
// Decides by the file's first bytes.
arrow::Result<Kind> kind_of(const std::string& path);

arrow::Result<std::shared_ptr<arrow::Schema>> schema_of(
    const std::string& path);

struct Wanted {
  std::vector<int> columns;  // ascending
  int64_t first_row = 0;
  int threads = 1;  // that may read at once
};
// Reads one batch into memory at a time. Batches are fully checked; errors name
// the place in the file.
arrow::Result<std::shared_ptr<arrow::RecordBatchReader>> read_file(
    const std::string& path, const Wanted& wanted);

// The same for files of one kind.
arrow::Result<std::shared_ptr<arrow::Schema>> parquet_schema(
    const std::string& path);
arrow::Result<std::shared_ptr<arrow::RecordBatchReader>> read_parquet(
    const std::string& path, const Wanted& wanted);
arrow::Result<std::shared_ptr<arrow::Schema>> ipc_schema(
    const std::string& path, Kind kind);
arrow::Result<std::shared_ptr<arrow::RecordBatchReader>> read_ipc(
    const std::string& path, Kind kind, const Wanted& wanted);

}  // namespace tessera::arrow_files
