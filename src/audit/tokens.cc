// audit/tokens.cc: scans the text in one pass.
#include "audit/tokens.h"

#include <algorithm>

#include "base/fail.h"
#include "base/text.h"

namespace tessera::audit {
namespace {

constexpr std::string_view kMarks = "()[]{}<>,:=+-*?|/";

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         c == '$' || c == '.';
}
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_word(char c) { return is_letter(c) || is_digit(c); }

class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  Result<Tokens> scan() {
    while (skip_space()) {
      if (out_.size() >= kMaxTokens) {
        return over_limit("audit",
                          "a program must have at most {} words, found more",
                          kMaxTokens);
      }
      if (auto e = next(); !e) return e.error();
    }
    if (!open_.empty()) {
      const Token& t = out_[open_.back()];
      return invalid("audit", "brackets must pair, found {} open on line {}",
                     in_quotes(t.text), t.line);
    }
    for (size_t i = 0; i < kEnds; ++i) add(Kind::mark, "\n");
    return std::move(out_);
  }

 private:
  // Skips to the next token; returns false at the end.
  bool skip_space() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '\n') {
        ++line_;
      } else if (text_.substr(at_, 2) == "//") {
        at_ = std::min(text_.find('\n', at_), text_.size());
        continue;
      } else if (c != ' ' && c != '\t' && c != '\r') {
        return true;
      }
      ++at_;
    }
    return false;
  }

  void add(Kind kind, std::string_view text) {
    out_.push_back({text, line_, 0, kind, false});
  }

  Result<void> next() {
    const size_t begin = at_;
    const char c = text_[at_];
    if (is_word(c)) {
      while (at_ < text_.size() && is_word(text_[at_])) ++at_;
      add(Kind::word, text_.substr(begin, at_ - begin));
      return {};
    }
    if (c == '"') {
      auto end = string_end();
      if (!end) return end.error();
      add(Kind::text, text_.substr(begin + 1, *end - begin - 1));
      at_ = *end + 1;
      return {};
    }
    const std::string_view two = text_.substr(at_, 2);
    if (two == "->") {
      at_ += 2;
      add(Kind::arrow, two);
      return {};
    }
    // `{-#` and `#-}` enclose text that is not part of the program.
    if (text_.substr(at_, 3) == "{-#") {
      at_ += 3;
      return open(text_.substr(begin, 3));
    }
    if (text_.substr(at_, 3) == "#-}") {
      at_ += 3;
      return close('{', text_.substr(begin, 3));
    }
    constexpr std::string_view kSigils = "%@#!^";
    if (const size_t sigil = kSigils.find(c); sigil != std::string_view::npos) {
      constexpr Kind kKinds[] = {Kind::value, Kind::symbol, Kind::attribute,
                                 Kind::type, Kind::block};
      return name(kKinds[sigil]);
    }
    if (kMarks.find(c) == std::string_view::npos) {
      return invalid("audit",
                     "a program must be MLIR text, found {} on line {}",
                     in_quotes(text_.substr(at_, 1)), line_);
    }
    ++at_;
    const std::string_view mark = text_.substr(begin, 1);
    switch (c) {
      case '(':
      case '[':
      case '{':
      case '<':
        return open(mark);
      case ')':
        return close('(', mark);
      case ']':
        return close('[', mark);
      case '}':
        return close('{', mark);
      case '>':
        return close('<', mark);
      default:
        add(Kind::mark, mark);
        return {};
    }
  }

  // The position of the closing quote of the string that begins here.
  Result<size_t> string_end() const {
    for (size_t i = at_ + 1; i < text_.size() && text_[i] != '\n'; ++i) {
      if (text_[i] == '"') return i;
      if (text_[i] == '\\') ++i;
    }
    return invalid(
        "audit", "a string must end on its line, found none on line {}", line_);
  }

  Result<void> name(Kind kind) {
    const size_t begin = at_++;
    if (kind == Kind::symbol && at_ < text_.size() && text_[at_] == '"') {
      auto end = string_end();
      if (!end) return end.error();
      at_ = *end + 1;
    } else {
      while (at_ < text_.size() && (is_word(text_[at_]) || text_[at_] == '-')) {
        // An arrow ends a name: `%0->`.
        if (text_.substr(at_, 2) == "->") break;
        ++at_;
      }
    }
    add(kind, text_.substr(begin, at_ - begin));
    return {};
  }

  Result<void> open(std::string_view mark) {
    open_.push_back(static_cast<uint32_t>(out_.size()));
    add(Kind::mark, mark);
    return {};
  }

  Result<void> close(char opener, std::string_view mark) {
    if (open_.empty() || !out_[open_.back()].is(opener)) {
      return invalid("audit", "brackets must pair, found {} on line {}",
                     in_quotes(mark), line_);
    }
    const uint32_t from = open_.back();
    open_.pop_back();
    out_[from].match = static_cast<uint32_t>(out_.size());
    add(Kind::mark, mark);
    out_.back().match = from;
    if (opener == '(' && from > 0 && out_[from - 1].is_word("loc")) {
      drop_location(from - 1);
    }
    return {};
  }

  // `loc(...)`, or `#loc1 = loc(...)`.
  void drop_location(size_t first) {
    if (first >= 2 && out_[first - 1].is('=') &&
        out_[first - 2].kind == Kind::attribute) {
      first -= 2;
    }
    out_.resize(first);
  }

  std::string_view text_;
  size_t at_ = 0;
  uint32_t line_ = 1;
  Tokens out_;
  std::vector<uint32_t> open_;
};

}  // namespace

Result<Tokens> read_tokens(std::string_view text) {
  return Scanner(text).scan();
}

std::string unescape(std::string_view text) {
  const auto hex = [](char c) {
    if (is_digit(c)) return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
  };
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 == text.size()) {
      out += text[i];
      continue;
    }
    const char c = text[++i];
    if (c == 'n' || c == 't') {
      out += c == 'n' ? '\n' : '\t';
    } else if (i + 1 < text.size() && hex(c) >= 0 && hex(text[i + 1]) >= 0) {
      out += static_cast<char>(hex(c) * 16 + hex(text[++i]));
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace tessera::audit
