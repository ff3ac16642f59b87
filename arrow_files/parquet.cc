// arrow_files/parquet.cc: Parquet, a row group after another, some rows of it
// in memory at a time.
#include <arrow/type.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/schema.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>

#include <algorithm>
#include <utility>

#include "arrow_files/reader.h"

namespace tessera::arrow_files {
namespace {

using parquet::arrow::FileReader;

constexpr int64_t kBufferBytes = int64_t{1} << 20;
// Numbers of a column that a batch holds, more or less.
constexpr int64_t kBatchNumbers = int64_t{1} << 20;
constexpr int64_t kMostBatchRows = 4096;

arrow::Result<std::unique_ptr<FileReader>> open(const std::string& path) {
  ARROW_ASSIGN_OR_RAISE(auto file, arrow::io::ReadableFile::Open(path, pool()));
  parquet::ReaderProperties properties(pool());
  properties.enable_buffered_stream();
  properties.set_buffer_size(kBufferBytes);
  parquet::ArrowReaderProperties more(/*use_threads=*/false);
  // Else all of a row group is read ahead.
  more.set_pre_buffer(false);
  parquet::arrow::FileReaderBuilder builder;
  ARROW_RETURN_NOT_OK(builder.Open(std::move(file), properties));
  builder.memory_pool(pool())->properties(more);
  return builder.Build();
}

void add_leaves(const parquet::arrow::SchemaField& field,
                std::vector<int>& leaves) {
  if (field.is_leaf()) leaves.push_back(field.column_index);
  for (const auto& child : field.children) add_leaves(child, leaves);
}

class ParquetRows : public arrow::RecordBatchReader {
 public:
  ParquetRows(std::unique_ptr<FileReader> file, const Wanted& wanted,
              const arrow::Schema& all)
      : file_(std::move(file)), columns_(wanted.columns) {
    std::vector<std::shared_ptr<arrow::Field>> fields;
    for (const int column : columns_) {
      const auto& field = field_of(column);
      fields.push_back(field.field);
      add_leaves(field, leaves_);
    }
    schema_ = arrow::schema(std::move(fields), all.metadata());
    skip_ = wanted.first_row;
  }

  std::shared_ptr<arrow::Schema> schema() const override { return schema_; }

  arrow::Status ReadNext(std::shared_ptr<arrow::RecordBatch>* out) override {
    out->reset();
    while (group_ < file_->num_row_groups()) {
      const arrow::Status status = read_some(out);
      if (!status.ok()) return at_place(status);
      if (*out) return arrow::Status::OK();
    }
    if (skip_ == 0) return arrow::Status::OK();
    return arrow::Status::Invalid("the file ends ", skip_,
                                  " rows before the row to begin with");
  }

 private:
  const parquet::arrow::SchemaField& field_of(int column) const {
    return file_->manifest().schema_fields[static_cast<size_t>(column)];
  }
  int64_t rows_of_group() const {
    return file_->parquet_reader()->metadata()->RowGroup(group_)->num_rows();
  }

  // Rows of the open group, or none: then a step was made towards them.
  arrow::Status read_some(std::shared_ptr<arrow::RecordBatch>* out) {
    const int64_t rows = rows_of_group();
    if (!batches_) {
      if (rows < 0) return arrow::Status::Invalid("fewer than no rows");
      if (rows <= skip_) {
        skip_ -= rows;
        ++group_;
        return arrow::Status::OK();
      }
      file_->set_batch_size(batch_rows(rows));
      ARROW_ASSIGN_OR_RAISE(batches_,
                            file_->GetRecordBatchReader({group_}, leaves_));
      given_ = 0;
    }
    std::shared_ptr<arrow::RecordBatch> batch;
    ARROW_RETURN_NOT_OK(batches_->ReadNext(&batch));
    if (!batch) {
      batches_.reset();
      if (given_ != rows) {
        return arrow::Status::Invalid("it has ", given_,
                                      " rows and says that it has ", rows);
      }
      ++group_;
      return arrow::Status::OK();
    }
    ARROW_RETURN_NOT_OK(batch->ValidateFull());
    given_ += batch->num_rows();
    const int64_t passed = std::min(skip_, batch->num_rows());
    skip_ -= passed;
    if (passed < batch->num_rows()) *out = batch->Slice(passed);
    return arrow::Status::OK();
  }

  int64_t batch_rows(int64_t rows) const {
    const auto group = file_->parquet_reader()->metadata()->RowGroup(group_);
    int64_t numbers = 1;
    for (const int leaf : leaves_) {
      numbers = std::max(numbers, group->ColumnChunk(leaf)->num_values());
    }
    // As doubles: nothing that a file says overflows.
    const double fit = static_cast<double>(kBatchNumbers) *
                       static_cast<double>(rows) / static_cast<double>(numbers);
    return static_cast<int64_t>(
        std::clamp(fit, 1.0, static_cast<double>(kMostBatchRows)));
  }

  // Names the row group, and the column where one alone fails.
  arrow::Status at_place(const arrow::Status& status) {
    batches_.reset();
    for (const int column : columns_) {
      const auto& field = field_of(column);
      std::vector<int> leaves;
      add_leaves(field, leaves);
      if (reads(leaves)) continue;
      return status.WithMessage("column ", field.field->name(),
                                " of row group ", group_, ": ",
                                status.message());
    }
    return status.WithMessage("row group ", group_, ": ", status.message());
  }
  bool reads(const std::vector<int>& leaves) {
    auto batches = file_->GetRecordBatchReader({group_}, leaves);
    if (!batches.ok()) return false;
    while (true) {
      std::shared_ptr<arrow::RecordBatch> batch;
      if (!(*batches)->ReadNext(&batch).ok()) return false;
      if (!batch) return true;
      if (!batch->ValidateFull().ok()) return false;
    }
  }

  std::unique_ptr<FileReader> file_;
  std::vector<int> columns_, leaves_;
  std::shared_ptr<arrow::Schema> schema_;
  int64_t skip_ = 0;  // rows before the first that is wanted
  int group_ = 0;
  std::unique_ptr<arrow::RecordBatchReader> batches_;  // of the group
  int64_t given_ = 0;                                  // by the group
};

}  // namespace

arrow::Result<std::shared_ptr<arrow::Schema>> parquet_schema(
    const std::string& path) {
  ARROW_ASSIGN_OR_RAISE(const auto file, open(path));
  std::shared_ptr<arrow::Schema> schema;
  ARROW_RETURN_NOT_OK(file->GetSchema(&schema));
  return schema;
}

arrow::Result<std::shared_ptr<arrow::RecordBatchReader>> read_parquet(
    const std::string& path, const Wanted& wanted) {
  ARROW_ASSIGN_OR_RAISE(auto file, open(path));
  const size_t fields = file->manifest().schema_fields.size();
  for (const int column : wanted.columns) {
    if (static_cast<size_t>(column) < fields) continue;
    return arrow::Status::Invalid("the file has no column ", column);
  }
  std::shared_ptr<arrow::Schema> all;
  ARROW_RETURN_NOT_OK(file->GetSchema(&all));
  return std::make_shared<ParquetRows>(std::move(file), wanted, *all);
}

}  // namespace tessera::arrow_files
