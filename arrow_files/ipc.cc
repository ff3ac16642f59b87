// arrow_files/ipc.cc: reads both forms of Arrow IPC: a file with an index of
// its batches, or a stream. One batch is in memory at a time.
#include <arrow/array.h>
#include <arrow/ipc/options.h>
#include <arrow/ipc/reader.h>
#include <arrow/type.h>

#include <algorithm>
#include <utility>

#include "arrow_files/reader.h"

namespace tessera::arrow_files {
namespace {

arrow::ipc::IpcReadOptions options(const std::vector<int>& columns) {
  auto out = arrow::ipc::IpcReadOptions::Defaults();
  out.memory_pool = pool();
  out.use_threads = false;
  out.included_fields = columns;
  return out;
}

// A file that refuses short reads. Without it Arrow accepts a column whose
// bytes lie beyond the end of the file, and uses whatever was in memory.
class WholeReads : public arrow::io::RandomAccessFile {
 public:
  explicit WholeReads(std::shared_ptr<arrow::io::RandomAccessFile> file)
      : file_(std::move(file)) {}

  arrow::Result<int64_t> ReadAt(int64_t position, int64_t bytes,
                                void* out) override {
    return file_->ReadAt(position, bytes, /*allow_short_read=*/false, out);
  }
  arrow::Result<int64_t> ReadAt(int64_t position, int64_t bytes, bool,
                                void* out) override {
    return ReadAt(position, bytes, out);
  }
  arrow::Result<std::shared_ptr<arrow::Buffer>> ReadAt(int64_t position,
                                                       int64_t bytes) override {
    return file_->ReadAt(position, bytes, /*allow_short_read=*/false);
  }
  arrow::Result<std::shared_ptr<arrow::Buffer>> ReadAt(int64_t position,
                                                       int64_t bytes,
                                                       bool) override {
    return ReadAt(position, bytes);
  }
  arrow::Result<int64_t> Read(int64_t bytes, void* out) override {
    return file_->Read(bytes, out);
  }
  arrow::Result<std::shared_ptr<arrow::Buffer>> Read(int64_t bytes) override {
    return file_->Read(bytes);
  }
  arrow::Result<int64_t> GetSize() override { return file_->GetSize(); }
  arrow::Result<int64_t> Tell() const override { return file_->Tell(); }
  arrow::Status Seek(int64_t position) override {
    return file_->Seek(position);
  }
  arrow::Status Close() override { return file_->Close(); }
  bool closed() const override { return file_->closed(); }

 private:
  std::shared_ptr<arrow::io::RandomAccessFile> file_;
};

// Reads either form batch by batch.
class Batches {
 public:
  static arrow::Result<Batches> open(const std::string& path, Kind kind,
                                     const std::vector<int>& columns) {
    Batches out;
    // Not mapped, so a file that shrinks while it is read gives an error.
    ARROW_ASSIGN_OR_RAISE(out.input_,
                          arrow::io::ReadableFile::Open(path, pool()));
    if (kind == Kind::ipc_file) {
      ARROW_ASSIGN_OR_RAISE(
          out.file_,
          arrow::ipc::RecordBatchFileReader::Open(
              std::make_shared<WholeReads>(out.input_), options(columns)));
    } else {
      ARROW_ASSIGN_OR_RAISE(out.stream_,
                            arrow::ipc::RecordBatchStreamReader::Open(
                                out.input_, options(columns)));
    }
    return out;
  }

  std::shared_ptr<arrow::Schema> schema() const {
    return file_ ? file_->schema() : stream_->schema();
  }
  // Null after the last.
  arrow::Result<std::shared_ptr<arrow::RecordBatch>> next() {
    std::shared_ptr<arrow::RecordBatch> batch;
    if (!file_) {
      ARROW_ASSIGN_OR_RAISE(const int64_t begin, input_->Tell());
      ARROW_RETURN_NOT_OK(stream_->ReadNext(&batch));
      ARROW_ASSIGN_OR_RAISE(const int64_t end, input_->Tell());
      // Arrow's reader takes the end of the file for the end of the stream.
      if (!batch && begin == end) {
        return arrow::Status::Invalid(
            "the file ends before the mark that ends a stream (it was cut, or "
            "whoever wrote it did not end it)");
      }
    } else if (number_ < file_->num_record_batches()) {
      ARROW_ASSIGN_OR_RAISE(batch, file_->ReadRecordBatch(number_));
    }
    if (batch) ++number_;
    return batch;
  }
  int number() const { return number_; }  // of the next

 private:
  std::shared_ptr<arrow::io::ReadableFile> input_;
  std::shared_ptr<arrow::ipc::RecordBatchFileReader> file_;
  std::shared_ptr<arrow::RecordBatchReader> stream_;
  int number_ = 0;
};

class IpcRows : public arrow::RecordBatchReader {
 public:
  IpcRows(Batches batches, int64_t first_row)
      : batches_(std::move(batches)), skip_(first_row) {}

  std::shared_ptr<arrow::Schema> schema() const override {
    return batches_.schema();
  }

  arrow::Status ReadNext(std::shared_ptr<arrow::RecordBatch>* out) override {
    out->reset();
    while (true) {
      const int number = batches_.number();
      auto read = batches_.next();
      if (!read.ok()) return at(number, read.status());
      std::shared_ptr<arrow::RecordBatch> batch = std::move(*read);
      if (!batch) break;
      const int64_t passed = std::min(skip_, batch->num_rows());
      skip_ -= passed;
      if (passed > 0 && passed == batch->num_rows()) continue;
      for (int c = 0; c < batch->num_columns(); ++c) {
        const arrow::Status checked = batch->column(c)->ValidateFull();
        if (checked.ok()) continue;
        return at(number, checked, "column " + batch->column_name(c) + " of ");
      }
      *out = passed > 0 ? batch->Slice(passed) : std::move(batch);
      return arrow::Status::OK();
    }
    if (skip_ == 0) return arrow::Status::OK();
    return arrow::Status::Invalid("the file ends ", skip_,
                                  " rows before the row to begin with");
  }

 private:
  static arrow::Status at(int number, const arrow::Status& status,
                          const std::string& column = "") {
    return status.WithMessage(column, "record batch ", number, ": ",
                              status.message());
  }

  Batches batches_;
  int64_t skip_ = 0;
};

}  // namespace

arrow::Result<std::shared_ptr<arrow::Schema>> ipc_schema(
    const std::string& path, Kind kind) {
  ARROW_ASSIGN_OR_RAISE(const Batches batches, Batches::open(path, kind, {}));
  return batches.schema();
}

arrow::Result<std::shared_ptr<arrow::RecordBatchReader>> read_ipc(
    const std::string& path, Kind kind, const Wanted& wanted) {
  ARROW_ASSIGN_OR_RAISE(Batches batches,
                        Batches::open(path, kind, wanted.columns));
  return std::make_shared<IpcRows>(std::move(batches), wanted.first_row);
}

}  // namespace tessera::arrow_files
