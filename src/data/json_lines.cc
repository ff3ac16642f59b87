// data/json_lines.cc: files of JSON lines, read line by line, and parsed one by
// one or by several workers, some MiB at a time.
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>
#include <utility>

#include "base/descriptor.h"
#include "base/fail.h"
#include "base/text.h"
#include "data/input_files.h"
#include "data/json_document.h"
#include "data/parsed_lines.h"
#include "tessera/documents.h"

namespace tessera {
namespace {

constexpr size_t kReadBytes = size_t{1} << 16;
constexpr int64_t kMaxLineBytes = int64_t{1} << 30;
// Bytes to read ahead for each of several workers: enough to divide the lines
// evenly, and to make the time to start threads negligible.
constexpr int64_t kAheadBytes = int64_t{1} << 21;

constexpr std::pair<std::string_view, std::string_view> kOtherKinds[] = {
    {"\x1f\x8b", "gzip"},
    {"\x28\xb5\x2f\xfd", "zstd"},
    {"PAR1", "Parquet"},
    {"ARROW1", "Arrow IPC"}};

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

class JsonLines : public DocumentSource {
 public:
  JsonLines(std::vector<std::string> files, const JsonLinesLimits& limits)
      : files_(std::move(files)), limits_(limits) {}

  Result<bool> read(Documents& into) override {
    if (workers_ > 1 && parsed_.empty() && !failed_) read_ahead();
    if (!parsed_.empty()) {
      auto next = parsed_.next(into, handed_, ignored_);
      if (!next) return next.error();
      return true;
    }
    if (failed_) return *failed_;
    auto more = next_line();
    handed_ = at_;
    if (!more || !*more) return more;
    auto added = data::add_json_document(line_, place(at_), into, ignored_);
    if (!added) return added.error();
    return true;
  }

  SourcePosition position() const override { return handed_; }

  std::string place(const SourcePosition& end) const override {
    return fmt::format("line {} of {}", end.line,
                       in_quotes(files_[static_cast<size_t>(end.file)]));
  }

  Result<void> seek(const SourcePosition& position) override {
    if (auto e = data::check_file_number(position, files_.size()); !e) return e;
    if (position.line < 0 || position.line > position.offset) {
      return invalid("data",
                     "a position must have passed 0 to {} lines in {} bytes, "
                     "found {}",
                     position.offset, position.offset, position.line);
    }
    file_.reset();
    begin_ = end_ = 0;
    at_ = handed_ = position;
    parsed_ = {};
    failed_.reset();
    return {};
  }

  void set_workers(int64_t workers) override {
    workers_ = std::clamp<int64_t>(workers, 1, kMaxAhead);
  }

  std::set<std::string> ignored() const override { return ignored_; }
  std::string inputs() const override { return data::digest_of_files(files_); }

 private:
  const std::string& name() const {
    return files_[static_cast<size_t>(at_.file)];
  }

  // Reads and parses lines for all workers. An error comes last.
  void read_ahead() {
    std::vector<data::Line> lines;
    for (int64_t bytes = 0; bytes < workers_ * kAheadBytes;) {
      auto more = next_line();
      if (!more) failed_ = more.error();
      if (!more || !*more) break;
      lines.push_back({std::exchange(line_, {}), at_});
      bytes += lines.back().bytes();
    }
    parsed_.parse(std::move(lines), workers_,
                  [this](const SourcePosition& end) { return place(end); });
  }

  // Reads the next line that is not blank into line_; false at the end.
  Result<bool> next_line() {
    while (at_.file < static_cast<int64_t>(files_.size())) {
      if (!file_) {
        if (auto e = open(); !e) return e.error();
      }
      auto more = read_line();
      if (!more) return more.error();
      if (!*more) {
        if (auto e = check_unchanged(); !e) return e.error();
        file_.reset();
        at_ = {at_.file + 1, 0, 0};
      } else if (!is_blank(line_)) {
        return true;
      }
    }
    return false;
  }

  Result<void> open() {
    file_.reset(std::fopen(name().c_str(), "rb"));
    opened_ = {};
    if (!file_ || fstat(fileno(file_.get()), &opened_) != 0) {
      return data::unreadable(name());
    }
    if (!S_ISREG(opened_.st_mode) && !S_ISFIFO(opened_.st_mode)) {
      return io_error("data", "documents must be a file, found none for {}",
                      in_quotes(name()));
    }
    begin_ = end_ = 0;
    if (at_.offset != 0) return go_on(opened_.st_size);
    return S_ISREG(opened_.st_mode) ? check_kind() : Result<void>();
  }

  // At the end of a file, checks that it did not change since it was opened:
  // the lines read so far could mix two versions.
  Result<void> check_unchanged() const {
    struct stat now = {};
    if (fstat(fileno(file_.get()), &now) != 0) {
      return data::unreadable(name());
    }
    if (!S_ISREG(now.st_mode) ||
        (now.st_size == opened_.st_size &&
         now.st_mtim.tv_sec == opened_.st_mtim.tv_sec &&
         now.st_mtim.tv_nsec == opened_.st_mtim.tv_nsec)) {
      return {};
    }
    return data::changed_input(name());
  }

  // Recognizes files of other kinds by their first bytes.
  Result<void> check_kind() {
    std::array<char, 8> bytes = {};
    const size_t n = std::fread(bytes.data(), 1, bytes.size(), file_.get());
    const std::string_view begin(bytes.data(), n);
    for (const auto& [magic, kind] : kOtherKinds) {
      if (!begin.starts_with(magic)) continue;
      return invalid("data",
                     "documents must be JSON lines, or files named .parquet, "
                     ".arrow, .arrows, .feather or .ipc, found {} for {}",
                     kind, in_quotes(name()));
    }
    std::rewind(file_.get());
    return {};
  }

  // Continues at the line that begins at the offset.
  Result<void> go_on(int64_t bytes) {
    if (fseeko(file_.get(), at_.offset - 1, SEEK_SET) != 0) {
      return data::unreadable(name());
    }
    const bool ends = at_.offset == bytes;
    if (at_.offset <= bytes && (std::fgetc(file_.get()) == '\n' || ends)) {
      return {};
    }
    return invalid("data",
                   "a position must be the beginning of a line, found byte {} "
                   "for {}",
                   at_.offset, in_quotes(name()));
  }

  // Reads a line into line_ without its newline; false at the end of the file.
  Result<bool> read_line() {
    line_.clear();
    bool any = false;
    while (true) {
      if (begin_ == end_) {
        begin_ = 0;
        end_ = std::fread(buffer_.data(), 1, buffer_.size(), file_.get());
        if (end_ == 0 && std::ferror(file_.get()) != 0) {
          return io_error("data", "a file must be readable, found '{}' for {}",
                          reason(errno), place(at_));
        }
        if (end_ == 0) {
          if (any) ++at_.line;
          return any;
        }
      }
      any = true;
      const std::string_view rest(buffer_.data() + begin_, end_ - begin_);
      const size_t newline = rest.find('\n');
      const size_t taken =
          newline == std::string_view::npos ? rest.size() : newline;
      if (static_cast<int64_t>(line_.size() + taken) > limits_.max_line_bytes) {
        ++at_.line;
        return over_limit("data",
                          "a line must be at most {} bytes, found more "
                          "for {}",
                          limits_.max_line_bytes, place(at_));
      }
      line_.append(rest.substr(0, taken));
      const size_t used = taken + (newline == std::string_view::npos ? 0 : 1);
      begin_ += used;
      at_.offset += static_cast<int64_t>(used);
      if (newline == std::string_view::npos) continue;
      ++at_.line;
      return true;
    }
  }

  std::vector<std::string> files_;
  JsonLinesLimits limits_;
  int64_t workers_ = 1;
  SourcePosition at_, handed_;   // after what is read, and returned
  data::ParsedLines parsed_;     // lines between these two
  std::optional<Error> failed_;  // comes after those lines
  std::unique_ptr<std::FILE, CloseFile> file_;
  struct stat opened_ = {};  // state of file_ when it was opened
  std::string buffer_ = std::string(kReadBytes, '\0');
  size_t begin_ = 0, end_ = 0;  // unread part of the buffer
  std::string line_;
  std::set<std::string> ignored_;
};

}  // namespace

Result<std::unique_ptr<DocumentSource>> open_json_lines(
    std::vector<std::string> files, const JsonLinesLimits& limits) {
  if (files.empty()) {
    return invalid("data", "documents must come from a file, found none");
  }
  if (limits.max_line_bytes < 1 || limits.max_line_bytes > kMaxLineBytes) {
    return invalid("data", "a line's limit must be 1 to {} bytes, found {}",
                   kMaxLineBytes, limits.max_line_bytes);
  }
  return std::unique_ptr<DocumentSource>(
      std::make_unique<JsonLines>(std::move(files), limits));
}

}  // namespace tessera
