// data/parsed_lines.h: lines of JSON that several threads parse; their
// documents come in the order of the lines.
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

// A line that is not blank.
struct Line {
  std::string text;
  SourcePosition end;  // the position after the line

  // Approximate memory of the line and its document, besides numbers.
  int64_t bytes() const { return static_cast<int64_t>(text.size()) + 256; }
};

class ParsedLines {
 public:
  // How errors name the line that ends there; called by any thread.
  using Place = std::function<std::string(const SourcePosition& end)>;

  // Replaces the previous lines. At most `threads` threads parse: the caller's
  // and others that end within the call. If threads or memory are short, fewer
  // threads parse everything.
  void parse(std::vector<Line> lines, int64_t threads, const Place& place);

  // Whether all documents have been handed on.
  bool empty() const { return part_ == parts_.size(); }

  // Adds the next document. `end` becomes the end of its line, and `ignored`
  // gets its fields without a column. A line that is not a document gives its
  // error in its turn and in every later call. Must not be called when empty().
  Result<void> next(Documents& into, SourcePosition& end,
                    std::set<std::string>& ignored);

 private:
  struct Fields {
    FieldSet known;
    std::set<std::string> ignored;
  };
  // The lines that one thread parses, up to the first that fails.
  struct Part {
    size_t begin = 0, end = 0;
    Documents documents;
    std::vector<Fields> fields;  // of each document
    Error error;                 // of the line after them; unset if it threw
    std::exception_ptr thrown;
  };
  void split();
  void parse(Part& part, const Place& place);

  std::vector<Line> lines_;
  std::vector<Part> parts_;
  size_t part_ = 0, document_ = 0;  // `document_` is the next within the part
};

}  // namespace tessera::data
