// base/npy.cc: NumPy's .npy files, as far as token ids need them.
#include "base/npy.h"

#include <charconv>
#include <optional>

#include "base/bytes.h"
#include "base/fail.h"
#include "base/shape.h"
#include "base/text.h"

namespace tessera {
namespace {

constexpr std::string_view kWhere = "npy";
constexpr std::string_view kMagic = "\x93NUMPY";

struct Header {
  std::optional<std::string> dtype;
  std::optional<bool> fortran;
  std::optional<std::vector<int64_t>> shape;
};

// The header is a Python dict; this reads the few literals one holds.
class HeaderParser {
 public:
  explicit HeaderParser(std::string_view text) : text_(text) {}

  Result<Header> parse() {
    Header header;
    if (!take('{')) return expected("'{'");
    while (!take('}')) {
      const std::optional<std::string> key = string();
      if (!key) return expected("a key in quotes or '}'");
      if (!take(':')) return expected("':'");
      if (Result<void> ok = value(*key, header); !ok) return ok.error();
      if (take(',')) continue;
      if (!take('}')) return expected("',' or '}'");
      break;
    }
    skip_space();
    if (at_ < text_.size()) return expected("the end");
    if (!header.dtype) return missing("descr");
    if (!header.fortran) return missing("fortran_order");
    if (!header.shape) return missing("shape");
    return header;
  }

 private:
  void skip_space() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' ||
                                  text_[at_] == '\n' || text_[at_] == '\r')) {
      ++at_;
    }
  }

  bool take(char c) {
    skip_space();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  bool take_word(std::string_view word) {
    skip_space();
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  // No escapes: no key and no dtype accepted here needs one.
  std::optional<std::string> string() {
    skip_space();
    if (at_ >= text_.size()) return {};
    const char quote = text_[at_];
    if (quote != '\'' && quote != '"') return {};
    const size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) return {};
    std::string out(text_.substr(at_ + 1, end - at_ - 1));
    at_ = end + 1;
    return out;
  }

  Error expected(std::string_view what) const {
    const std::string_view rest = text_.substr(at_);
    return invalid(kWhere,
                   "the header must have {}, found {} for byte {} of it", what,
                   rest.empty() ? "its end" : in_quotes(rest, 20), at_);
  }

  static Error missing(std::string_view key) {
    return invalid(kWhere, "the header must have the key '{}', found none",
                   key);
  }

  static Error twice(std::string_view key) {
    return invalid(kWhere, "a header key must appear once, found '{}' twice",
                   key);
  }

  Result<void> value(const std::string& key, Header& header) {
    if (key == "descr") {
      if (header.dtype) return twice(key);
      skip_space();
      if (at_ < text_.size() && text_[at_] == '[') {
        return invalid(kWhere,
                       "dtype must be '<i4' or '<i8', found a structured one "
                       "for the array");
      }
      header.dtype = string();
      if (!header.dtype) return expected("a dtype in quotes");
    } else if (key == "fortran_order") {
      if (header.fortran) return twice(key);
      if (take_word("True")) {
        header.fortran = true;
      } else if (take_word("False")) {
        header.fortran = false;
      } else {
        return expected("True or False");
      }
    } else if (key == "shape") {
      if (header.shape) return twice(key);
      return shape(header.shape.emplace());
    } else {
      return invalid(kWhere,
                     "header keys must be descr, fortran_order and shape, "
                     "found {} for one",
                     in_quotes(key));
    }
    return {};
  }

  Result<void> shape(std::vector<int64_t>& out) {
    if (!take('(')) return expected("'('");
    while (!take(')')) {
      if (out.size() == kMaxDimensions) {
        return over_limit(kWhere,
                          "an array must have at most {} dimensions, found "
                          "more for the shape",
                          kMaxDimensions);
      }
      skip_space();
      int64_t n = 0;
      const char* begin = text_.data() + at_;
      const char* end = text_.data() + text_.size();
      const auto [stop, error] = std::from_chars(begin, end, n);
      if (error != std::errc() || n < 0) {
        return expected("a dimension that fits int64");
      }
      at_ += static_cast<size_t>(stop - begin);
      out.push_back(n);
      if (take(',')) continue;
      // "(3)" is a number in Python, not a shape.
      if (out.size() == 1) return expected("','");
      if (!take(')')) return expected("',' or ')'");
      break;
    }
    return {};
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

Result<NpyInts> parse_npy(std::string_view bytes) {
  if (bytes.substr(0, kMagic.size()) != kMagic) {
    return invalid(kWhere, "the first bytes must be \\x93NUMPY, found {}",
                   in_quotes(bytes.substr(0, kMagic.size())));
  }
  if (bytes.size() < 8) {
    return invalid(kWhere,
                   "a file must hold its version, found {} bytes for at least "
                   "8",
                   bytes.size());
  }
  const auto major = load<uint8_t>(bytes, 6);
  const auto minor = load<uint8_t>(bytes, 7);
  if (major < 1 || major > 3 || minor != 0) {
    return invalid(kWhere, "version must be 1.0, 2.0 or 3.0, found {}.{}",
                   major, minor);
  }
  const size_t start = major == 1 ? 10 : 12;
  if (bytes.size() < start) {
    return invalid(kWhere,
                   "a file must hold its header's length, found {} bytes for "
                   "at least {}",
                   bytes.size(), start);
  }
  const size_t length =
      major == 1 ? load<uint16_t>(bytes, 8) : load<uint32_t>(bytes, 8);
  if (length > bytes.size() - start) {
    return invalid(kWhere,
                   "a file must hold its whole header, found {} bytes for {}",
                   bytes.size() - start, length);
  }
  Result<Header> header = HeaderParser(bytes.substr(start, length)).parse();
  if (!header) return header.error();
  const std::string& dtype = *header->dtype;
  if (dtype != "<i4" && dtype != "<i8") {
    return invalid(kWhere,
                   "dtype must be '<i4' or '<i8', found {} for the array",
                   in_quotes(dtype));
  }
  if (*header->fortran) {
    return invalid(kWhere,
                   "an array must lie in C order, found fortran_order True");
  }

  NpyInts out;
  out.shape = std::move(*header->shape);
  const size_t width = dtype == "<i4" ? 4 : 8;
  const std::string_view data = bytes.substr(start + length);
  const std::optional<int64_t> count = element_count(out.shape);
  // Compared by division: the claimed count times its width may overflow.
  if (!count || data.size() % width != 0 ||
      static_cast<uint64_t>(*count) != data.size() / width) {
    return invalid(kWhere,
                   "data must hold the shape's {} values of {} bytes, found "
                   "{} bytes",
                   count ? fmt::to_string(*count) : "more than 2^63", width,
                   data.size());
  }
  if (width == 4) {
    out.values = load_array<int32_t>(data);
    return out;
  }
  out.values.resize(data.size() / 8);
  for (size_t i = 0; i < out.values.size(); ++i) {
    const auto v = load<int64_t>(data, 8 * i);
    if (v < INT32_MIN || v > INT32_MAX) {
      return invalid(kWhere, "values must fit int32, found {} for value {}", v,
                     i);
    }
    out.values[i] = static_cast<int32_t>(v);
  }
  return out;
}

Result<std::string> write_npy(std::span<const int64_t> shape,
                              std::span<const int32_t> values) {
  const std::optional<int64_t> count = element_count(shape);
  if (shape.size() > kMaxDimensions || !count ||
      static_cast<uint64_t>(*count) != values.size()) {
    return invalid(kWhere, "a shape must hold its {} values, found [{}]",
                   values.size(), fmt::join(shape, ", "));
  }
  std::string header = "{'descr': '<i4', 'fortran_order': False, 'shape': (";
  // One dimension keeps its comma: "(3)" would be a number.
  header += fmt::format("{}{}), }}", fmt::join(shape, ", "),
                        shape.size() == 1 ? "," : "");
  // Data starts at a multiple of 64, as NumPy aligns it; the header ends in a
  // new line.
  constexpr size_t kStart = 10;
  const size_t total = (kStart + header.size() + 1 + 63) / 64 * 64;
  header.resize(total - kStart - 1, ' ');
  header += '\n';
  std::string out(kMagic);
  out += {'\x01', '\x00'};
  append(out, static_cast<uint16_t>(header.size()));
  out += header;
  out += bytes_of(values);
  return out;
}

}  // namespace tessera
