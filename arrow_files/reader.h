// arrow_files/reader.h: Parquet and Arrow IPC files as readers of record
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

// A file must not take more than this at once, whatever it says of itself.
#ifdef TESSERA_SANITIZED
constexpr int64_t kMaxBytes = int64_t{1} << 28;  // a fuzzer has 2 GiB in all
#else
constexpr int64_t kMaxBytes = int64_t{1} << 32;
#endif
arrow::MemoryPool* pool();

enum class Kind : uint8_t { parquet, ipc_file, ipc_stream };
// By the first bytes.
arrow::Result<Kind> kind_of(const std::string& path);

arrow::Result<std::shared_ptr<arrow::Schema>> schema_of(
    const std::string& path);

struct Wanted {
  std::vector<int> columns;  // ascending
  int64_t first_row = 0;
  int threads = 1;  // that may read at once
};
// A batch in memory at a time. Batches are checked in full; errors name the
// place in the file.
arrow::Result<std::shared_ptr<arrow::RecordBatchReader>> read_file(
    const std::string& path, const Wanted& wanted);

// Of one kind.
arrow::Result<std::shared_ptr<arrow::Schema>> parquet_schema(
    const std::string& path);
arrow::Result<std::shared_ptr<arrow::RecordBatchReader>> read_parquet(
    const std::string& path, const Wanted& wanted);
arrow::Result<std::shared_ptr<arrow::Schema>> ipc_schema(
    const std::string& path, Kind kind);
arrow::Result<std::shared_ptr<arrow::RecordBatchReader>> read_ipc(
    const std::string& path, Kind kind, const Wanted& wanted);

}  // namespace tessera::arrow_files
