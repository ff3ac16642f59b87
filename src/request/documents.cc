// request/documents.cc: reads packed documents from any source.
#include "request/documents.h"

#include <string>

#include "base/fail.h"
#include "base/files.h"
#include "base/npy.h"
#include "base/text.h"
#include "request/document_numbers.h"
#include "request/drawn_documents.h"
#include "request/numbers.h"
#include "tessera/facts.h"
#include "tessera/plan.h"

namespace tessera::request {
namespace {

bool is_npy(const std::string& path, std::string_view bytes) {
  return path.ends_with(".npy") || bytes.starts_with("\x93NUMPY");
}

Result<Ids> read_npy(const std::string& path, std::string_view bytes,
                     int64_t batch, int64_t length) {
  auto npy = parse_npy(bytes);
  if (!npy) return in_file(npy.error(), path);
  using Shape = std::vector<int64_t>;
  if (npy->shape == Shape{batch, length}) return std::move(npy->values);
  if (npy->shape == Shape{length}) return repeat(npy->values, batch);
  return invalid("docs", "{} must have shape [{}] or [{}, {}], found [{}]",
                 in_quotes(path), length, batch, length,
                 fmt::join(npy->shape, ", "));
}

// Whether the text is a list of numbers, not a file name.
bool is_list(std::string_view text) {
  return text.find_first_not_of("0123456789,+- ") == std::string_view::npos;
}

// `rest` is a list of numbers, or a file unless they are lengths.
Result<Ids> read_numbers(const std::string& rest, std::string_view what,
                         const DocumentNumbers& numbers, int64_t batch,
                         int64_t length) {
  if (numbers.prefix == kLengths.prefix || is_list(rest)) {
    auto values = parse_ints(rest, fmt::format("{} {}", what, numbers.all),
                             numbers.least, kMaxTokens);
    if (!values) return values;
    return repeat(numbers.ids(*values, what, length), batch);
  }
  auto bytes = read_file(rest, kMaxFactBytes);
  if (!bytes) return bytes.error();
  return is_npy(rest, *bytes)
             ? read_npy_numbers(rest, *bytes, numbers, batch, length)
             : read_text_numbers(rest, *bytes, numbers, batch, length);
}

}  // namespace

std::string_view document_file(std::string_view source) {
  for (const DocumentNumbers& numbers : {kBoundaries, kPositions}) {
    if (take_prefix(source, numbers.prefix)) break;
  }
  return source;
}

Result<Ids> read_documents(std::string_view source, std::string_view what,
                           int64_t batch, int64_t length) {
  std::string_view rest = source;
  if (source == "lognormal") return draw_documents("", what, batch, length);
  if (take_prefix(rest, "lognormal:"))
    return draw_documents(rest, what, batch, length);
  for (const DocumentNumbers& numbers : {kLengths, kBoundaries, kPositions}) {
    if (take_prefix(rest, numbers.prefix)) {
      return read_numbers(std::string(rest), what, numbers, batch, length);
    }
  }
  const std::string path(source);
  auto bytes = read_file(path, kMaxFactBytes);
  if (!bytes) return bytes.error();
  return is_npy(path, *bytes)
             ? read_npy(path, *bytes, batch, length)
             : read_text_numbers(path, *bytes, kLengths, batch, length);
}

}  // namespace tessera::request
