// tests/fuzz/json_lines_fuzz.cc: any lines either are documents whose rows hold
// every rule of packed rows, with every token accounted for, or give an error
// that names its line. The first byte picks strategy and length of a row.
#include <algorithm>
#include <string>
#include <vector>

#include "data/json_document.h"
#include "tests/fuzz/must.h"

using namespace tessera;

namespace {

// Lines of text that lie in memory.
class Lines : public DocumentSource {
 public:
  explicit Lines(std::string_view text) : text_(text) {}

  Result<bool> read(Documents& into) override {
    if (text_.empty()) return false;
    const std::string_view line = text_.substr(0, text_.find('\n'));
    text_.remove_prefix(std::min(text_.size(), line.size() + 1));
    ++line_;
    auto added = data::add_json_document(
        line, "line " + std::to_string(line_) + " of it", into, ignored_);
    if (!added) return added.error();
    return true;
  }
  SourcePosition position() const override { return {0, 0, line_}; }
  Result<void> seek(const SourcePosition&) override { return {}; }

 private:
  std::string_view text_;
  int64_t line_ = 0;
  std::set<std::string> ignored_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  StreamOptions options;
  options.pack.strategy = static_cast<PackStrategy>(data[0] % 4);
  options.pack.long_documents = static_cast<LongDocuments>(data[0] / 4 % 4);
  options.pack.tokens = 1 + data[0] / 16 * 3;
  options.pack.window_rows = 2;
  options.pack.tile = {8, 8};
  options.max_chunks = options.max_edges = 3;
  auto stream =
      RowStream::open(std::make_unique<Lines>(std::string_view(
                          reinterpret_cast<const char*>(data) + 1, size - 1)),
                      options);
  must(stream.ok());
  while (true) {
    const auto rows = stream->next(4);
    if (!rows) {
      const std::string& message = rows.error().message;
      must(message.starts_with("[data] ") &&
           message.find(" of it") != std::string::npos);
      return 0;
    }
    if (rows->rows == 0) break;
    must(check_rows(*rows, "it").ok());
  }
  must(stream->account().sums(options.pack.tokens));
  const ChunkAccount& chunks = stream->chunks();
  must(chunks.chunks_in >= chunks.chunks_out + chunks.chunks_over);
  must(chunks.edges_lost() >= 0);
  return 0;
}
