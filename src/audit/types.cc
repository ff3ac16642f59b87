// audit/types.cc: reads tensor<4x8xbf16> and lists of types.
#include "audit/arrays.h"
#include "base/fail.h"
#include "base/text.h"

namespace tessera::audit {
namespace {

// The bits of an element; 0 for an unknown element type.
int64_t element_bits(std::string_view word) {
  for (const auto& [name, bits] :
       {std::pair{"bf16", 16}, std::pair{"f16", 16}, std::pair{"f32", 32},
        std::pair{"f64", 64}, std::pair{"i1", 8}}) {
    if (word == name) return bits;
  }
  for (const std::string_view prefix : {"i", "ui", "si"}) {
    if (!word.starts_with(prefix)) continue;
    const std::string_view digits = word.substr(prefix.size());
    for (const auto& [name, bits] :
         {std::pair{"2", 2}, std::pair{"4", 4}, std::pair{"8", 8},
          std::pair{"16", 16}, std::pair{"32", 32}, std::pair{"64", 64}}) {
      if (digits == name) return bits;
    }
  }
  // f8E4M3FN, f4E2M1FN
  if (word.size() > 2 && word[0] == 'f' && word[2] == 'E' &&
      (word[1] == '8' || word[1] == '6' || word[1] == '4')) {
    return word[1] - '0';
  }
  return 0;
}

// Takes `4x8x` from the front of `4x8xbf16`.
std::optional<Dims> take_dims(std::string_view& word) {
  Dims out;
  for (;;) {
    size_t i = 0;
    int64_t n = 0;
    for (; i < word.size() && word[i] >= '0' && word[i] <= '9'; ++i) {
      const auto tens = product(n, 10);
      if (!tens || *tens > INT64_MAX - 9) return {};
      n = *tens + (word[i] - '0');
    }
    if (i == 0) return out;
    if (i == word.size() || word[i] != 'x') return {};
    out.push_back(n);
    word.remove_prefix(i + 1);
  }
}

std::string between(const Tokens& t, uint32_t open) {
  const char* const begin = t[open].text.data();
  const char* const end = t[t[open].match].text.data() + 1;
  return in_quotes("tensor" +
                   std::string(begin, static_cast<size_t>(end - begin)));
}

Result<Type> read_tensor(const Tokens& t, uint32_t open) {
  const uint32_t close = t[open].match;
  const auto refused = [&]() -> Error {
    return invalid("audit",
                   "an array must have static sizes and a plain dtype, found "
                   "{} on line {}",
                   between(t, open), t[open].line);
  };
  if (t[open + 1].kind != Kind::word) return refused();
  std::string_view word = t[open + 1].text;
  auto dims = take_dims(word);
  if (!dims) return refused();
  Type out{std::string(word), std::move(*dims), element_bits(word)};
  uint32_t at = open + 2;
  if (word == "complex" && t[at].is('<') && t[at].match == at + 2 &&
      (t[at + 1].text == "f32" || t[at + 1].text == "f64")) {
    out.bits = 2 * element_bits(t[at + 1].text);
    out.dtype = "complex<" + std::string(t[at + 1].text) + ">";
    at += 3;
  }
  if (out.bits == 0 || at != close) return refused();
  return out;
}

}  // namespace

std::optional<int64_t> product(int64_t a, int64_t b) {
  int64_t out = 0;
  if (__builtin_mul_overflow(a, b, &out)) return {};
  return out;
}

std::string to_string(const Type& type) {
  std::string out = "tensor<";
  for (const int64_t n : type.dims) out += fmt::format("{}x", n);
  return out + type.dtype + ">";
}

Result<int64_t> bytes_of(const Type& type, uint32_t line) {
  std::optional<int64_t> bits = type.bits;
  for (const int64_t n : type.dims) {
    if (n == 0) return int64_t{0};
  }
  for (const int64_t n : type.dims) {
    if (bits) bits = product(*bits, n);
  }
  if (!bits || *bits > INT64_MAX - 7) {
    return over_limit("audit",
                      "an array must have at most 2^63 bits, found {} on line "
                      "{}",
                      to_string(type), line);
  }
  return (*bits + 7) / 8;
}

Error unread(const Token& found, std::string_view wanted) {
  const bool end = found.text == "\n";
  return invalid("audit", "{} must stand here, found {} on line {}", wanted,
                 end ? "the end" : in_quotes(found.text), found.line);
}

Result<Type> read_type(const Tokens& t, uint32_t& at) {
  if (t[at].is_word("tensor") && t[at + 1].is('<')) {
    auto out = read_tensor(t, at + 1);
    at = t[at + 1].match + 1;
    return out;
  }
  if (t[at].kind == Kind::type && t[at].text == "!stablehlo.token") {
    ++at;
    return Type{"token", {}, 0};
  }
  return unread(t[at], "the type of an array");
}

namespace {

Result<std::vector<Type>> read_types(const Tokens& t, uint32_t& at) {
  std::vector<Type> out;
  const bool in_brackets = t[at].is('(');
  const uint32_t close = in_brackets ? t[at].match : 0;
  if (in_brackets && ++at == close) {
    ++at;
    return out;
  }
  for (;;) {
    auto type = read_type(t, at);
    if (!type) return type.error();
    out.push_back(std::move(*type));
    if (!t[at].is(',')) break;
    ++at;
  }
  if (in_brackets && at++ != close) return unread(t[at - 1], "')'");
  return out;
}

}  // namespace

Result<Signature> read_signature(const Tokens& t, uint32_t at) {
  auto operands = read_types(t, at);
  if (!operands) return operands.error();
  Signature out{*operands, *operands};
  if (t[at].kind != Kind::arrow) return out;
  auto results = read_types(t, ++at);
  if (!results) return results.error();
  out.results = std::move(*results);
  return out;
}

}  // namespace tessera::audit
