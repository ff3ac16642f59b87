// arrow_files/component.cc: the component's C interface, without exceptions.
#include <arrow/c/bridge.h>
#include <arrow/type.h>

#include <cstdio>
#include <exception>
#include <string>

#include "arrow_files/reader.h"
#include "arrow_files/writer.h"
#include "data/arrow_component.h"

namespace tessera::arrow_files {
namespace {

int say(TesseraArrowWhy* why, const std::string& text) {
  std::snprintf(why->text, sizeof(why->text), "%s", text.c_str());
  return 1;
}

template <class Work>
int guarded(TesseraArrowWhy* why, const Work& work) {
  try {
    const arrow::Status status = work();
    if (status.ok()) return 0;
    // The detail has the system's reason why a file was not written.
    const auto& detail = status.detail();
    return say(why, detail ? status.message() + ": " + detail->ToString()
                           : status.message());
  } catch (const std::exception& e) {
    return say(why, e.what());
  }
}

// Catches exceptions of a reader, which Arrow's own bridge lets through.
class Guarded : public arrow::RecordBatchReader {
 public:
  explicit Guarded(std::shared_ptr<arrow::RecordBatchReader> from)
      : from_(std::move(from)) {}

  std::shared_ptr<arrow::Schema> schema() const override {
    return from_->schema();
  }
  arrow::Status ReadNext(std::shared_ptr<arrow::RecordBatch>* out) override {
    try {
      return from_->ReadNext(out);
    } catch (const std::exception& e) {
      return arrow::Status::IOError(e.what());
    }
  }

 private:
  std::shared_ptr<arrow::RecordBatchReader> from_;
};

int schema(const char* path, ArrowSchema* out, TesseraArrowWhy* why) {
  return guarded(why, [&]() -> arrow::Status {
    ARROW_ASSIGN_OR_RAISE(const auto found, schema_of(path));
    return arrow::ExportSchema(*found, out);
  });
}

int read(const char* path, const int* columns, int count, int64_t first_row,
         int threads, ArrowArrayStream* out, TesseraArrowWhy* why) {
  return guarded(why, [&]() -> arrow::Status {
    const Wanted wanted{{columns, columns + count}, first_row, threads};
    ARROW_ASSIGN_OR_RAISE(auto reader, read_file(path, wanted));
    return arrow::ExportRecordBatchReader(
        std::make_shared<Guarded>(std::move(reader)), out);
  });
}

int write(int descriptor, TesseraArrowFormat format, ArrowArrayStream* from,
          TesseraArrowWhy* why) {
  return guarded(why, [&]() -> arrow::Status {
    ARROW_ASSIGN_OR_RAISE(const auto to,
                          arrow::io::FileOutputStream::Open(descriptor));
    ARROW_ASSIGN_OR_RAISE(auto reader, arrow::ImportRecordBatchReader(from));
    return write_file(to, format, *reader);
  });
}

constexpr TesseraArrowComponent kComponent{TESSERA_ARROW_ABI, &schema, &read,
                                           &write};

}  // namespace
}  // namespace tessera::arrow_files

extern "C" __attribute__((visibility("default"))) const TesseraArrowComponent*
tessera_arrow_component(void) {
  return &tessera::arrow_files::kComponent;
}
