// audit/tokens.h: the tokens of an MLIR text, with matched brackets.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/result.h"

namespace tessera::audit {

enum class Kind : uint8_t {
  word,       // tensor, 4x8xbf16, stablehlo.add
  text,       // "..."; the token's text excludes the quotes
  value,      // %0
  symbol,     // @main, @"a b"
  attribute,  // #sdy.sharding
  type,       // !stablehlo.token
  block,      // ^bb0
  arrow,      // ->
  mark,       // one of ()[]{}<>,:=+-*?|/
};

struct Token {
  std::string_view text;
  uint32_t line = 0;
  uint32_t match = 0;  // index of the matching bracket
  Kind kind = Kind::mark;
  bool opens_region = false;  // set by read_module

  bool is(char mark) const {
    return kind == Kind::mark && text.front() == mark;
  }
  bool is_word(std::string_view w) const {
    return kind == Kind::word && text == w;
  }
  bool opens() const {
    return kind == Kind::mark && std::string_view("([{<").find(text.front()) !=
                                     std::string_view::npos;
  }
};
using Tokens = std::vector<Token>;

inline constexpr size_t kMaxTokens = size_t{1} << 24;

// Comments and source locations are left out. The last kEnds tokens are end
// tokens, which match nothing, so it is always safe to look that far ahead.
// Token texts are views of `text`.
inline constexpr size_t kEnds = 4;
Result<Tokens> read_tokens(std::string_view text);

// The bytes of an MLIR string: \n, \t, \\, \" and \XX are one byte each.
std::string unescape(std::string_view text);

}  // namespace tessera::audit
