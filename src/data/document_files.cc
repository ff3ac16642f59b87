// data/document_files.cc: documents from files of any format, in order.
#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/fail.h"
#include "base/text.h"
#include "data/arrow_component.h"
#include "data/arrow_documents.h"
#include "data/input_files.h"
#include "tessera/documents.h"

namespace tessera {
namespace {

class DocumentFiles : public DocumentSource {
 public:
  explicit DocumentFiles(std::vector<std::string> files)
      : files_(std::move(files)) {}

  Result<bool> read(Documents& into) override {
    while (file_ < static_cast<int64_t>(files_.size())) {
      if (!open_) {
        if (auto e = open({}); !e) return e.error();
      }
      auto more = open_->read(into);
      if (!more || *more) return more;
      close();
      ++file_;
    }
    return false;
  }

  SourcePosition position() const override {
    SourcePosition at;
    if (open_) at = open_->position();
    at.file = file_;
    return at;
  }

  std::string place(const SourcePosition& end) const override {
    const std::string& file = files_[static_cast<size_t>(end.file)];
    const bool rows = data::is_arrow_file(file);
    return fmt::format("{} {} of {}", rows ? "row" : "line",
                       rows ? end.offset - 1 : end.line, in_quotes(file));
  }

  Result<void> seek(const SourcePosition& position) override {
    if (auto e = data::check_file_number(position, files_.size()); !e) return e;
    close();
    file_ = position.file;
    SourcePosition within = position;
    within.file = 0;
    if (within == SourcePosition{}) return {};  // opened when it is read
    if (file_ < static_cast<int64_t>(files_.size())) return open(within);
    return invalid("data",
                   "a position after the last file must be its beginning, "
                   "found {}",
                   position.offset);
  }

  void set_workers(int64_t workers) override {
    workers_ = std::clamp<int64_t>(workers, 1, kMaxAhead);
  }

  std::set<std::string> ignored() const override {
    std::set<std::string> all = ignored_;
    if (open_) all.merge(open_->ignored());
    return all;
  }

  std::string inputs() const override { return data::digest_of_files(files_); }

 private:
  Result<void> open(const SourcePosition& from) {
    const std::string& file = files_[static_cast<size_t>(file_)];
    if (data::is_arrow_file(file)) {
      auto opened =
          data::open_arrow_file(file, from.offset, workers_, ignored_);
      if (!opened) return opened.error();
      open_ = std::move(*opened);
      return {};
    }
    auto opened = open_json_lines({file});
    if (!opened) return opened.error();
    (*opened)->set_workers(workers_);
    if (auto e = (*opened)->seek(from); !e) return e;
    open_ = std::move(*opened);
    return {};
  }

  void close() {
    if (open_) ignored_.merge(open_->ignored());
    open_.reset();
  }

  std::vector<std::string> files_;
  int64_t workers_ = 1;
  int64_t file_ = 0;
  std::unique_ptr<DocumentSource> open_;  // of that file, once it is open
  std::set<std::string> ignored_;         // from earlier files
};

// The extension decides: no file of JSON lines is named .safetensors.
Result<void> check_no_rows(const std::string& path) {
  if (data::is_arrow_file(path)) return data::refuse_row_columns(path);
  if (!path.ends_with(".safetensors")) return {};
  return invalid("data",
                 "documents must not be packed rows already, found a "
                 ".safetensors file for {}",
                 in_quotes(path));
}

// Checks a folder's files first, so that packed rows in it are named.
Result<void> check_documents(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  for (fs::directory_iterator at(path, error), end; !error && at != end;
       at.increment(error)) {
    if (!at->is_regular_file(error)) continue;
    if (auto e = check_no_rows(at->path().string()); !e) return e;
  }
  const bool is_arrow = data::is_arrow_file(path);
  if (auto e = data::check_file(path, "documents", !is_arrow); !e) return e;
  return check_no_rows(path);
}

}  // namespace

Result<std::unique_ptr<DocumentSource>> open_documents(
    std::vector<std::string> files) {
  if (files.empty()) {
    return invalid("data", "documents must come from a file, found none");
  }
  // A missing component or file is an error before any work.
  if (std::any_of(files.begin(), files.end(), [](const std::string& file) {
        return data::is_arrow_file(file);
      })) {
    if (auto component = data::arrow_component(); !component) {
      return component.error();
    }
  }
  for (const std::string& file : files) {
    if (auto e = check_documents(file); !e) return e.error();
  }
  return std::unique_ptr<DocumentSource>(
      std::make_unique<DocumentFiles>(std::move(files)));
}

}  // namespace tessera
