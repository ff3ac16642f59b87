// data/parsed_lines.h: lines of JSON that threads parse side by side, handed on
// as documents in the order of the lines.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "data/document_fields.h"
#include "tessera/documents.h"

namespace tessera::data {

// One that is not blank.
struct Line {
  std::string text;
  SourcePosition end;  // of the line

  // About what it takes, and what it becomes besides numbers.
  int64_t bytes() const { return static_cast<int64_t>(text.size()) + 256; }
};

class ParsedLines {
 public:
  // What errors call the line that ends there; any thread asks.
  using Place = std::function<std::string(const SourcePosition& end)>;

  // In place of lines of before. By so many threads at most: the caller's, and
  // others that end within the call. Where threads or memory are short, fewer
  // do all.
  void parse(std::vector<Line> lines, int64_t threads, const Place& place);

  // Whether all are handed on.
  bool empty() const { return part_ == parts_.size(); }

  // Adds the next document. `end` becomes that of its line, and `ignored` gets
  // its fields without a column. A line that is none tells in its turn, and
  // again from then on. Not where it is empty.
  Result<void> next(Documents& into, SourcePosition& end,
                    std::set<std::string>& ignored);

 private:
  struct Fields {
    FieldSet known;
    std::set<std::string> ignored;
  };
  // Lines that one thread parses, up to the first that it cannot.
  struct Part {
    size_t begin = 0, end = 0;
    Documents documents;
    std::vector<Fields> fields;  // of each document
    Error error;                 // of the line behind them, unless it threw
    std::exception_ptr thrown;
  };
  void split();
  void parse(Part& part, const Place& place);

  std::vector<Line> lines_;
  std::vector<Part> parts_;
  size_t part_ = 0, document_ = 0;  // of the part, the next
};

}  // namespace tessera::data
