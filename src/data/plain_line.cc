// data/plain_line.cc: a parser for the common form of JSON lines.
#include "data/plain_line.h"

#include <charconv>
#include <system_error>

namespace tessera::data {
namespace {

// Each function skips blanks first, and returns whether it found its item.
class Reader {
 public:
  explicit Reader(std::string_view text)
      : at_(text.data()), end_(text.data() + text.size()) {}

  bool take(char c) {
    pass_blanks();
    if (at_ == end_ || *at_ != c) return false;
    ++at_;
    return true;
  }
  bool take(std::string_view word) {
    pass_blanks();
    if (!std::string_view(at_, end_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  bool is_over() {
    pass_blanks();
    return at_ == end_;
  }

  template <class Item>
  bool items(char open, char close, const Item& item) {
    if (!take(open)) return false;
    if (take(close)) return true;
    do {
      if (!item()) return false;
    } while (take(','));
    return take(close);
  }

  // Stops before a fraction or an exponent, so the next step fails.
  bool integer(int32_t& to) {
    pass_blanks();
    const auto [after, error] = std::from_chars(at_, end_, to);
    if (error != std::errc()) return false;
    const char* const digits = at_ + (*at_ == '-' ? 1 : 0);
    if (*digits == '0' && after - digits > 1) return false;
    at_ = after;
    return true;
  }

  bool string(std::string_view& to) {
    if (!take('"')) return false;
    const char* const begin = at_;
    while (at_ != end_ && *at_ >= ' ' && *at_ <= '~' && *at_ != '"' &&
           *at_ != '\\') {
      ++at_;
    }
    to = std::string_view(begin, at_);
    return at_ != end_ && *at_++ == '"';
  }

 private:
  void pass_blanks() {
    while (at_ != end_ &&
           (*at_ == ' ' || *at_ == '\t' || *at_ == '\n' || *at_ == '\r')) {
      ++at_;
    }
  }

  const char* at_;
  const char* end_;
};

bool read_numbers(Reader& reader, std::vector<int32_t>& to) {
  return reader.items('[', ']', [&] {
    int32_t number = 0;
    if (!reader.integer(number)) return false;
    to.push_back(number);
    return true;
  });
}

bool read_pairs(Reader& reader, std::vector<int32_t>& to) {
  return reader.items('[', ']', [&] {
    const size_t begin = to.size();
    return read_numbers(reader, to) && to.size() == begin + 2;
  });
}

bool read_value(Reader& reader, Field field, PlainLine& line) {
  std::vector<int32_t>& numbers = line.numbers[static_cast<size_t>(field)];
  switch (field) {
    case Field::chunk_unit:
      return reader.string(line.chunk_unit);
    case Field::token_spans:
    case Field::call_edges:
    case Field::type_edges:
      return read_pairs(reader, numbers);
    default:
      return read_numbers(reader, numbers);
  }
}

bool pass_value(Reader& reader) {
  std::string_view text;
  int32_t number = 0;
  return reader.string(text) || reader.take("null") || reader.take("true") ||
         reader.take("false") || reader.integer(number);
}

bool read_field(Reader& reader, PlainLine& line) {
  std::string_view name;
  if (!reader.string(name) || !reader.take(':')) return false;
  const auto field = field_called(name);
  if (!field) return line.others.insert(name).second && pass_value(reader);
  const auto at = static_cast<size_t>(*field);
  if (line.known.test(at)) return false;
  line.known.set(at);
  return read_value(reader, *field, line);
}

}  // namespace

std::optional<PlainLine> read_plain_line(std::string_view line) {
  std::optional<PlainLine> out(std::in_place);
  Reader reader(line);
  const bool read =
      reader.items('{', '}', [&] { return read_field(reader, *out); });
  if (!read || !reader.is_over()) out.reset();
  return out;
}

}  // namespace tessera::data
