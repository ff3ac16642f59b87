// mask/parse.cc: parses the mask language by recursive descent.
#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "base/fail.h"
#include "base/nearest.h"
#include "mask/canonical.h"

namespace tessera::mask {
namespace {

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}
bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool is_digit(char c) { return c >= '0' && c <= '9'; }

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<Expr> parse() {
    auto e = parse_or(1);
    if (!e) return e;
    skip_space();
    if (at_ < text_.size()) return expected("'&', '|' or the end", at_);
    return e;
  }

 private:
  void skip_space() {
    while (at_ < text_.size() && is_space(text_[at_])) ++at_;
  }

  bool take(char c) {
    skip_space();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  // The word, number or character at `at`, quoted for an error.
  std::string quote(size_t at) const {
    if (at >= text_.size()) return "the end";
    size_t end = at + 1;
    if (is_letter(text_[at]) || is_digit(text_[at])) {
      while (end < text_.size() &&
             (is_letter(text_[end]) || is_digit(text_[end]))) {
        ++end;
      }
    }
    const unsigned char c = static_cast<unsigned char>(text_[at]);
    if (c < 0x20 || c >= 0x7f) return fmt::format("byte 0x{:02x}", c);
    constexpr size_t kMaxShown = 40;
    std::string word(text_.substr(at, std::min(end - at, kMaxShown)));
    return "'" + word + (end - at > kMaxShown ? "...'" : "'");
  }

  Error at_column(Error error, size_t at) const {
    error.column = static_cast<int>(at) + 1;
    error.message += fmt::format(" at column {}", error.column);
    return error;
  }

  Error expected(std::string_view what, size_t at) const {
    return at_column(invalid("mask", "expected {}, found {}", what, quote(at)),
                     at);
  }

  Result<Expr> parse_chain(Atom op, char symbol, int depth) {
    auto first = op == Atom::op_or ? parse_chain(Atom::op_and, '&', depth)
                                   : parse_not(depth);
    if (!first) return first;
    Expr e = std::move(*first);
    bool chained = false;
    while (true) {
      skip_space();
      const size_t at = at_;
      if (!take(symbol)) return e;
      if (at_ < text_.size() && text_[at_] == symbol) {
        return at_column(
            invalid("mask", "'{0}' is one character, found '{0}{0}'", symbol),
            at);
      }
      auto next = op == Atom::op_or ? parse_chain(Atom::op_and, '&', depth)
                                    : parse_not(depth);
      if (!next) return next;
      if (!chained) {
        Expr chain{op, 0, 0, {}};
        chain.children.push_back(std::move(e));
        e = std::move(chain);
        chained = true;
      }
      e.children.push_back(std::move(*next));
      if (++nodes_ > kMaxExprNodes) {
        return at_column(
            over_limit("mask",
                       "an expression holds at most {} terms, found more",
                       kMaxExprNodes),
            at);
      }
    }
  }

  Result<Expr> parse_or(int depth) {
    if (depth > kMaxExprDepth) {
      return at_column(
          over_limit("mask", "nesting must be at most {}, found a deeper one",
                     kMaxExprDepth),
          at_);
    }
    return parse_chain(Atom::op_or, '|', depth);
  }

  Result<Expr> parse_not(int depth) {
    size_t negations = 0;
    size_t at = 0;
    while (skip_space(), at = at_, take('!')) {
      if (depth + static_cast<int>(++negations) > kMaxExprDepth) {
        return at_column(
            over_limit("mask", "nesting must be at most {}, found a deeper one",
                       kMaxExprDepth),
            at);
      }
    }
    auto e = parse_primary(depth + static_cast<int>(negations));
    if (!e) return e;
    Expr out = std::move(*e);
    for (; negations > 0; --negations) out = !std::move(out);
    return out;
  }

  Result<Expr> parse_primary(int depth) {
    skip_space();
    const size_t open = at_;
    if (take('(')) {
      auto e = parse_or(depth + 1);
      if (!e) return e;
      if (!take(')')) {
        skip_space();
        return expected(fmt::format("')' for the '(' at column {}", open + 1),
                        at_);
      }
      return e;
    }
    if (at_ >= text_.size() || !is_letter(text_[at_])) {
      return expected("an atom, '!' or '('", at_);
    }
    return parse_atom();
  }

  std::string_view take_word() {
    const size_t begin = at_;
    while (at_ < text_.size() &&
           (is_letter(text_[at_]) || is_digit(text_[at_]))) {
      ++at_;
    }
    return text_.substr(begin, at_ - begin);
  }

  Result<Expr> parse_atom() {
    const size_t begin = at_;
    const std::string_view name = take_word();
    std::vector<std::string_view> names;
    for (const AtomSpec& spec : atom_specs()) {
      if (spec.name == name) return parse_arguments(spec);
      names.push_back(spec.name);
    }
    const std::string hint = nearest(name, names);
    return at_column(
        invalid("mask", "an atom is one of {}, found {}{}",
                fmt::join(names, ", "), quote(begin),
                hint.empty() ? "" : fmt::format(" (did you mean {}?)", hint)),
        begin);
  }

  Result<Expr> parse_arguments(const AtomSpec& spec) {
    Expr e{spec.atom, 0, 0, {}};
    const size_t count = spec.arguments.size();
    if (count == 0) {
      skip_space();
      const size_t at = at_;
      if (take('(')) {
        return at_column(
            invalid("mask", "{} takes no arguments, found '('", spec.name), at);
      }
      return e;
    }
    if (!take('(')) {
      skip_space();
      return expected(fmt::format("'(' with {} after {}",
                                  fmt::join(spec.arguments, ", "), spec.name),
                      at_);
    }
    if (spec.atom == Atom::same) return parse_letter();
    std::array<std::optional<int64_t>, 2> values;
    for (size_t i = 0; i < count; ++i) {
      if (i > 0 && !take(',')) {
        skip_space();
        return expected(
            fmt::format("',' and {} of {}", spec.arguments[i], spec.name), at_);
      }
      size_t which = i;
      skip_space();
      const size_t at = at_;
      if (at_ < text_.size() && is_letter(text_[at_])) {
        const std::string_view word = take_word();
        const auto it =
            std::find(spec.arguments.begin(), spec.arguments.end(), word);
        if (it == spec.arguments.end()) {
          return at_column(invalid("mask", "{} takes {}, found {}", spec.name,
                                   fmt::join(spec.arguments, ", "), quote(at)),
                           at);
        }
        which = static_cast<size_t>(it - spec.arguments.begin());
        if (!take('=')) {
          skip_space();
          return expected(fmt::format("'=' after {}", word), at_);
        }
      }
      if (values[which]) {
        return at_column(invalid("mask", "{} of {} is given once, found twice",
                                 spec.arguments[which], spec.name),
                         at);
      }
      auto value = parse_integer(spec, which);
      if (!value) return value.error();
      values[which] = *value;
    }
    if (!take(')')) {
      skip_space();
      return expected(
          fmt::format("')' after {} of {}",
                      count == 1 ? "the argument" : "the arguments", spec.name),
          at_);
    }
    e.a = *values[0];
    if (count == 2) e.b = *values[1];
    return e;
  }

  Result<Expr> parse_letter() {
    skip_space();
    const size_t at = at_;
    const std::string_view word = take_word();
    constexpr char kLast = 'a' + kSameNames - 1;
    if (word.size() != 1 || word[0] < 'a' || word[0] > kLast) {
      return expected(fmt::format("a letter from a to {} for same", kLast), at);
    }
    if (!take(')')) {
      skip_space();
      return expected("')' after the letter of same", at_);
    }
    return tessera::same(word[0]);
  }

  Result<int64_t> parse_integer(const AtomSpec& spec, size_t which) {
    skip_space();
    const size_t at = at_;
    if (at_ < text_.size() && text_[at_] == '-') ++at_;
    const size_t digits = at_;
    while (at_ < text_.size() && is_digit(text_[at_])) ++at_;
    if (at_ == digits) {
      return expected(fmt::format("an integer for {} of {}",
                                  spec.arguments[which], spec.name),
                      at);
    }
    const std::string_view word = text_.substr(at, at_ - at);
    int64_t value = 0;
    const auto [end, code] =
        std::from_chars(word.data(), word.data() + word.size(), value);
    (void)end;
    if (code != std::errc{} || value < spec.least || value > kMaxArgument) {
      return at_column(
          invalid("mask", "{} must be from {} to {}, found {} for {}",
                  spec.arguments[which], spec.least, kMaxArgument, word,
                  spec.name),
          at);
    }
    return value;
  }

  std::string_view text_;
  size_t at_ = 0;
  int nodes_ = 0;
};

}  // namespace

}  // namespace tessera::mask

namespace tessera {

Result<Expr> parse_expr(std::string_view text) {
  return mask::Parser(text).parse();
}

Result<Mask> parse_mask(std::string_view text) {
  auto expr = parse_expr(text);
  if (!expr) return expr.error();
  return make_mask(*expr);
}

}  // namespace tessera
