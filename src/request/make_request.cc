// request/make_request.cc: reads masks, lengths and tiles, then facts.
#include "request/make_request.h"

#include <utility>

#include "base/fail.h"
#include "base/text.h"
#include "request/numbers.h"
#include "request/read_facts.h"
#include "request/unsupported.h"

namespace tessera::request {
namespace {

// Says why a feature is refused if the error is at the feature's name.
Error refused_word(std::string_view text, Error error) {
  if (error.column == 0) return error;
  const auto is_word = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           (c >= '0' && c <= '9');
  };
  const size_t begin = static_cast<size_t>(error.column) - 1;
  size_t end = begin;
  while (end < text.size() && is_word(text[end])) ++end;
  const std::string_view word =
      begin < end ? text.substr(begin, end - begin) : std::string_view();
  if (const auto why = refusal(word)) {
    error.message = fmt::format("[mask] {}, found '{}' at column {}", *why,
                                word, error.column);
  }
  return error;
}

}  // namespace

Result<Tile> parse_tile(std::string_view text, std::string_view what) {
  const std::vector<std::string_view> parts = split(text, 'x');
  if (parts.size() > 2) {
    return invalid("cli", "{} must read QxKV, as 256x256, found {}", what,
                   in_quotes(text));
  }
  auto q = parse_int(parts.front(), what, kMinBlock, kMaxBlock);
  if (!q) return q.error();
  auto kv = parse_int(parts.back(), what, kMinBlock, kMaxBlock);
  if (!kv) return kv.error();
  return Tile{*q, *kv};
}

Result<Request> resolve_request(const receipt::RequestText& o) {
  Request r;
  if (o.masks.empty()) {
    return invalid("cli",
                   "--mask must be given, found none (try --mask "
                   "'causal & documents')");
  }
  for (const std::string& text : o.masks) {
    auto mask = parse_mask(text);
    if (!mask) return refused_word(text, mask.error());
    r.masks.push_back(std::move(*mask));
  }
  if (!o.q_len) return invalid("cli", "--q-len must be given, found none");
  // Fields that are not given keep their defaults.
  for (const receipt::RequestField& field : receipt::request_fields()) {
    if (!field.is_given(o)) continue;
    const std::string text = field.texts(o)[0];
    if (field.number.in) {
      auto value = parse_int(text, field.flag(), 1, field.number.most);
      if (!value) return value.error();
      field.number.in(r) = *value;
    } else if (field.size) {
      auto size = parse_tile(text, field.flag());
      if (!size) return size.error();
      r.*field.size = *size;
    }
  }
  if (!o.kv_len) r.kv_len = r.q_len;
  return r;
}

Result<Resolved> resolve(const receipt::RequestText& o) {
  auto request = resolve_request(o);
  if (!request) return request.error();
  Resolved out;
  out.given = o;
  out.written = o.masks;
  out.request = std::move(*request);
  if (o.target) {
    auto target = find_target(*o.target);
    if (!target) return target.error();
    out.target = std::move(*target);
  }
  if (auto e = read_facts(o, out.request, out.facts); !e) return e.error();
  return out;
}

}  // namespace tessera::request
