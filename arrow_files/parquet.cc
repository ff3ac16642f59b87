// arrow_files/parquet.cc: reads Parquet by row group, with some rows of a group
// in memory at a time.
#include <arrow/type.h>
#include <parquet/arrow/reader.h>
#include <parquet/arrow/schema.h>
#include <parquet/file_reader.h>
#include <parquet/metadata.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "arrow_files/list_column.h"
#include "arrow_files/reader.h"
#include "arrow_files/side_by_side.h"

namespace tessera::arrow_files {
namespace {

using parquet::arrow::FileReader;

constexpr int64_t kBufferBytes = int64_t{1} << 20;
// About how many numbers of a column a batch holds.
constexpr int64_t kBatchNumbers = int64_t{1} << 20;
constexpr int64_t kMaxBatchRows = 4096;

arrow::Result<std::unique_ptr<FileReader>> open(const std::string& path) {
  ARROW_ASSIGN_OR_RAISE(auto file, arrow::io::ReadableFile::Open(path, pool()));
  parquet::ReaderProperties properties(pool());
  properties.enable_buffered_stream();
  properties.set_buffer_size(kBufferBytes);
  parquet::ArrowReaderProperties more(/*use_threads=*/false);
  // Else a whole row group is read ahead.
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
      : file_(std::move(file)),
        columns_(wanted.columns),
        threads_(wanted.threads) {
    std::vector<std::shared_ptr<arrow::Field>> fields;
    for (const int column : columns_) {
      const auto& field = field_of(column);
      fields.push_back(field.field);
      add_leaves(field, leaves_);
      if (!is_list(field)) add_leaves(field, others_);
    }
    schema_ = arrow::schema(std::move(fields), all.metadata());
    skip_ = wanted.first_row;
  }

  std::shared_ptr<arrow::Schema> schema() const override { return schema_; }

  arrow::Status ReadNext(std::shared_ptr<arrow::RecordBatch>* out) override {
    out->reset();
    while (group_ < file_->num_row_groups()) {
      const arrow::Status status = guarded([&] { return read_some(out); });
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
  bool is_list(const parquet::arrow::SchemaField& field) const {
    return is_list_column(field,
                          *file_->parquet_reader()->metadata()->schema());
  }
  // Parquet's readers throw exceptions.
  template <class Work>
  static arrow::Status guarded(const Work& work) {
    try {
      return work();
    } catch (const std::exception& e) {
      return arrow::Status::IOError(e.what());
    }
  }

  int64_t rows_of_group() const {
    return file_->parquet_reader()->metadata()->RowGroup(group_)->num_rows();
  }

  // Reads rows of the open group. If `out` stays null, this call passed rows or
  // groups without output.
  arrow::Status read_some(std::shared_ptr<arrow::RecordBatch>* out) {
    const int64_t rows = rows_of_group();
    if (!is_open_) {
      if (rows < 0) return arrow::Status::Invalid("fewer than no rows");
      if (rows <= skip_) {
        skip_ -= rows;
        ++group_;
        return arrow::Status::OK();
      }
      ARROW_RETURN_NOT_OK(open_group(rows));
    }
    std::vector<std::shared_ptr<arrow::Array>> arrays;
    int64_t count = std::min(batch_rows_, rows - given_);
    ARROW_RETURN_NOT_OK(read_columns(arrays, count));
    given_ += count;
    if (count == 0) {
      close_group();
      if (given_ != rows) {
        return arrow::Status::Invalid("it has ", given_,
                                      " rows and says that it has ", rows);
      }
      ++group_;
      return arrow::Status::OK();
    }
    const auto batch =
        arrow::RecordBatch::Make(schema_, count, std::move(arrays));
    const int64_t passed = std::min(skip_, count);
    skip_ -= passed;
    if (passed < count) *out = batch->Slice(passed);
    return arrow::Status::OK();
  }

  arrow::Status open_group(int64_t rows) {
    close_group();
    batch_rows_ = batch_rows(rows);
    given_ = 0;
    group_reader_ = file_->parquet_reader()->RowGroup(group_);
    for (const int column : columns_) {
      const auto& field = field_of(column);
      lists_.push_back(
          is_list(field) ? open_list_column(*group_reader_, field, batch_rows_)
                         : nullptr);
    }
    if (!others_.empty()) {
      file_->set_batch_size(batch_rows_);
      ARROW_ASSIGN_OR_RAISE(batches_,
                            file_->GetRecordBatchReader({group_}, others_));
    }
    is_open_ = true;
    return arrow::Status::OK();
  }
  void close_group() {
    is_open_ = false;
    batches_.reset();
    lists_.clear();
    group_reader_.reset();
  }

  // Reads `count` rows of each column, or as many as Arrow's reader returns of
  // columns that are not lists. At the end of the group there are none, and an
  // error if a column has more.
  arrow::Status read_columns(std::vector<std::shared_ptr<arrow::Array>>& arrays,
                             int64_t& count) {
    std::shared_ptr<arrow::RecordBatch> others;
    if (batches_) {
      ARROW_RETURN_NOT_OK(batches_->ReadNext(&others));
      if (others) ARROW_RETURN_NOT_OK(others->ValidateFull());
      count = others ? others->num_rows() : 0;
    }
    int next_other = 0;
    arrays.resize(lists_.size());
    for (size_t c = 0; others && c < lists_.size(); ++c) {
      if (!lists_[c]) arrays[c] = others->column(next_other++);
    }
    // Columns share only the file.
    return side_by_side(
        threads_, lists_.size(), [&](size_t c) -> arrow::Status {
          if (!lists_[c]) return arrow::Status::OK();
          ARROW_ASSIGN_OR_RAISE(arrays[c],
                                lists_[c]->next(std::max<int64_t>(1, count)));
          if (arrays[c]->length() == count) return arrow::Status::OK();
          return arrow::Status::Invalid(
              "column ", schema_->field(static_cast<int>(c))->name(), " has ",
              given_ + arrays[c]->length(), " rows or more, another ",
              given_ + count);
        });
  }

  int64_t batch_rows(int64_t rows) const {
    const auto group = file_->parquet_reader()->metadata()->RowGroup(group_);
    int64_t numbers = 1;
    for (const int leaf : leaves_) {
      numbers = std::max(numbers, group->ColumnChunk(leaf)->num_values());
    }
    // As doubles, so nothing that a file claims overflows.
    const double fit = static_cast<double>(kBatchNumbers) *
                       static_cast<double>(rows) / static_cast<double>(numbers);
    return static_cast<int64_t>(
        std::clamp(fit, 1.0, static_cast<double>(kMaxBatchRows)));
  }

  // Names the row group, and the column if one fails on its own.
  arrow::Status at_place(const arrow::Status& status) {
    close_group();
    for (const int column : columns_) {
      const auto& field = field_of(column);
      const auto alone = [&] {
        return is_list(field) ? read_list(field) : read_other(field);
      };
      if (guarded(alone).ok()) continue;
      return status.WithMessage("column ", field.field->name(),
                                " of row group ", group_, ": ",
                                status.message());
    }
    return status.WithMessage("row group ", group_, ": ", status.message());
  }
  arrow::Status read_list(const parquet::arrow::SchemaField& field) {
    const auto group = file_->parquet_reader()->RowGroup(group_);
    const auto list = open_list_column(*group, field, kMaxBatchRows);
    int64_t rows = 0;
    while (true) {
      ARROW_ASSIGN_OR_RAISE(const auto some, list->next(kMaxBatchRows));
      rows += some->length();
      if (some->length() == 0) break;
    }
    if (rows == rows_of_group()) return arrow::Status::OK();
    return arrow::Status::Invalid("another number of rows");
  }
  arrow::Status read_other(const parquet::arrow::SchemaField& field) {
    std::vector<int> leaves;
    add_leaves(field, leaves);
    ARROW_ASSIGN_OR_RAISE(const auto batches,
                          file_->GetRecordBatchReader({group_}, leaves));
    while (true) {
      std::shared_ptr<arrow::RecordBatch> batch;
      ARROW_RETURN_NOT_OK(batches->ReadNext(&batch));
      if (!batch) return arrow::Status::OK();
      ARROW_RETURN_NOT_OK(batch->ValidateFull());
    }
  }

  std::unique_ptr<FileReader> file_;
  std::vector<int> columns_, leaves_;
  int threads_ = 1;
  std::vector<int> others_;  // leaves of columns that are not lists
  std::shared_ptr<arrow::Schema> schema_;
  int64_t skip_ = 0;  // rows before the first wanted row
  int group_ = 0;
  // State of the open group.
  bool is_open_ = false;
  std::shared_ptr<parquet::RowGroupReader> group_reader_;
  std::vector<std::unique_ptr<ListColumn>> lists_;  // null: not a list column
  std::unique_ptr<arrow::RecordBatchReader> batches_;
  int64_t batch_rows_ = 0, given_ = 0;
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
