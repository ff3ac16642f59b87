// tests/fuzz/json_lines_fuzz.cc: a file of any lines is either documents whose
// rows keep every rule of packed rows, with every token accounted for, or gives
// an error that names the line. A resumed run gives the same. Two workers (no
// thread starts for so little input) and a simple reader of the same text must
// find the same rows and the same error. The first byte selects strategy and
// length of a row, the second the end of the reader's buffer or the line limit.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/fail.h"
#include "data/json_document.h"
#include "tests/fuzz/must.h"

using namespace tessera;

namespace {

// The bytes that json_lines.cc reads at a time.
constexpr size_t kBuffer = size_t{1} << 16;

// A file in memory that has a path.
class MemoryFile {
 public:
  MemoryFile() : file_(memfd_create("lines", MFD_CLOEXEC)) { must(file_ >= 0); }

  const std::string& write(std::string_view text) const {
    must(ftruncate(file_, 0) == 0);
    const auto size = static_cast<ssize_t>(text.size());
    must(pwrite(file_, text.data(), text.size(), 0) == size);
    return path_;
  }

 private:
  int file_;
  std::string path_ = "/proc/self/fd/" + std::to_string(file_);
};

// A simple reader of lines, from the definition.
class Lines : public DocumentSource {
 public:
  Lines(std::string_view text, std::string name, const JsonLinesLimits& limits)
      : text_(text), name_(std::move(name)), limits_(limits) {}

  Result<bool> read(Documents& into) override {
    while (!text_.empty()) {
      const std::string_view line = text_.substr(0, text_.find('\n'));
      text_.remove_prefix(std::min(text_.size(), line.size() + 1));
      ++line_;
      const std::string place = fmt::format("line {} of '{}'", line_, name_);
      if (static_cast<int64_t>(line.size()) > limits_.max_line_bytes) {
        return over_limit("data",
                          "a line must be at most {} bytes, found more for {}",
                          limits_.max_line_bytes, place);
      }
      if (line.find_first_not_of(" \t\r") == line.npos) continue;
      auto added = data::add_json_document(line, place, into, ignored_);
      if (!added) return added.error();
      return true;
    }
    return false;
  }
  SourcePosition position() const override { return {0, 0, line_}; }
  Result<void> seek(const SourcePosition&) override { return {}; }

 private:
  std::string_view text_;
  const std::string name_;
  const JsonLinesLimits limits_;
  int64_t line_ = 0;
  std::set<std::string> ignored_;
};

// All rows of a stream, and the error that it ends with.
struct Read {
  std::vector<Rows> rows;
  std::vector<StreamPosition> before;  // the position before each batch of rows
  std::string error;
};

Read read_all(RowStream& stream) {
  Read out;
  while (true) {
    out.before.push_back(stream.position());
    auto rows = stream.next(4);
    if (!rows) {
      out.error = rows.error().message;
      return out;
    }
    if (rows->rows == 0) return out;
    must(check_rows(*rows, "it").ok());
    out.rows.push_back(std::move(*rows));
  }
}

void must_sum(const RowStream& stream) {
  const StreamReport report = stream.report();
  must(report.account.sums(stream.shape().tokens));
  const ChunkAccount& chunks = report.chunks;
  must(chunks.chunks_in >= chunks.chunks_out + chunks.chunks_over);
  must(chunks.edges_dropped() >= 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  StreamOptions options;
  options.pack.strategy = static_cast<PackStrategy>(data[0] % 4);
  options.pack.long_documents = static_cast<LongDocuments>(data[0] / 4 % 4);
  options.pack.tokens = 1 + data[0] / 16 * 3;
  options.pack.window_rows = 2;
  options.pack.tile = {8, 8};
  options.max_chunks = options.max_edges = 3;
  JsonLinesLimits limits;
  std::string text;
  if (data[1] % 2 == 1) text = std::string(kBuffer - data[1], ' ') + '\n';
  if (data[1] % 2 == 0 && data[1] > 0) limits.max_line_bytes = data[1];
  text.append(reinterpret_cast<const char*>(data) + 2, size - 2);

  static const MemoryFile file;
  const std::string& path = file.write(text);
  const auto open = [&](int64_t workers, const StreamPosition& from) {
    auto source = std::move(*open_json_lines({path}, limits));
    source->set_workers(workers);
    auto stream = RowStream::open(std::move(source), options, from);
    must(stream.ok());
    return std::move(*stream);
  };
  RowStream stream = open(1, {});
  const Read read = read_all(stream);
  if (read.error.empty()) must_sum(stream);

  RowStream together = open(2, {});
  const Read also = read_all(together);
  must(also.rows == read.rows);
  must(also.before == read.before);
  must(also.error == read.error);

  auto slow =
      RowStream::open(std::make_unique<Lines>(text, path, limits), options);
  must(slow.ok());
  const Read want = read_all(*slow);
  must(read.rows == want.rows);
  // A file that begins like another kind of file has an error of its own.
  if (read.error.starts_with("[data] documents must be JSON lines")) {
    must(!want.error.empty());
  } else {
    must(read.error == want.error);
    // The error names the file, so that the line can be found.
    must(read.error.empty() || (read.error.starts_with("[data] ") &&
                                read.error.find(path) != std::string::npos));
  }

  const size_t at = data[1] % read.before.size();
  RowStream again = open(1 + static_cast<int64_t>(at % 2), read.before[at]);
  const Read rest = read_all(again);
  must(rest.error == read.error);
  must(std::equal(rest.rows.begin(), rest.rows.end(),
                  read.rows.begin() + static_cast<ptrdiff_t>(at),
                  read.rows.end()));
  return 0;
}
