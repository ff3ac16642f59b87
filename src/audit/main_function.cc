// audit/main_function.cc: func.func public @main(%a: type {attributes}, ...) ->
// (type {attributes}, ...).
#include "audit/main_function.h"

#include "base/fail.h"
#include "base/text.h"

namespace tessera::audit {
namespace {

struct Asked {
  std::string name;
  std::string what;  // name in errors
  const char* kind;  // "a parameter"
  uint32_t line;
};

// The token after `key =` directly within the braces that open at `open`.
std::optional<uint32_t> value_of(const Tokens& t, uint32_t open,
                                 std::string_view key) {
  for (uint32_t i = open + 1; i < t[open].match; ++i) {
    if (t[i].opens()) {
      i = t[i].match;
    } else if (t[i].is_word(key) && t[i + 1].is('=')) {
      return i + 2;
    }
  }
  return {};
}

// The array as sharded by the attributes that begin at `open`.
Result<AuditArray> placed(const Program& p, const Asked& a, const Type& type,
                          std::optional<uint32_t> open) {
  const Tokens& t = p.m.tokens;
  const auto ours = open ? value_of(t, *open, "sdy.sharding") : std::nullopt;
  const auto old = open ? value_of(t, *open, "mhlo.sharding") : std::nullopt;
  if (!ours && !old) {
    return invalid("audit",
                   "{} must have a sharding, found none for {} on "
                   "line {}",
                   a.kind, a.what, a.line);
  }
  std::optional<AuditArray> out;
  if (old) {
    if (t[*old].kind != Kind::text) return unread(t[*old], "a string");
    auto read = place_tiled(p.meshes, unescape(t[*old].text), type, a.what,
                            t[*old].line, false);
    if (!read) return read.error();
    out = std::move(*read);
  }
  if (ours) {
    const uint32_t at = resolve(p.m, *ours);
    if (t[at].text != "#sdy.sharding") return unread(t[at], "#sdy.sharding");
    auto sharding = read_sharding(t, at + 1);
    if (!sharding) return sharding.error();
    auto read = place(p.meshes, *sharding, type, a.what);
    if (!read) return read.error();
    if (out && out->part != read->part) {
      return invalid("audit",
                     "two shardings of an array must agree, found {} and {} "
                     "for {} on line {}",
                     in_quotes(read->sharding), in_quotes(out->sharding),
                     a.what, a.line);
    }
    out = std::move(*read);
  }
  out->name = a.name;
  return std::move(*out);
}

// Reads a type and its optional attributes; moves `at` past both.
Result<AuditArray> read_array(const Program& p, const Asked& a, uint32_t& at) {
  const Tokens& t = p.m.tokens;
  auto type = read_type(t, at);
  if (!type) return type.error();
  std::optional<uint32_t> open;
  if (t[at].is('{') && !t[at].opens_region) {
    open = at;
    at = t[at].match + 1;
  }
  return placed(p, a, *type, open);
}

Result<std::vector<AuditArray>> read_arguments(const Program& p, uint32_t at) {
  const Tokens& t = p.m.tokens;
  std::vector<AuditArray> out;
  const uint32_t close = t[at].match;
  for (++at; at != close;) {
    if (t[at].kind != Kind::value || !t[at + 1].is(':')) {
      return unread(t[at], "a parameter as %name: type");
    }
    const std::string name(t[at].text.substr(1));
    const Asked asked = {name, "%" + name, "a parameter", t[at].line};
    at += 2;
    auto array = read_array(p, asked, at);
    if (!array) return array.error();
    out.push_back(std::move(*array));
    if (at != close && !t[at].is(',')) return unread(t[at], "',' or ')'");
    if (t[at].is(',')) ++at;
  }
  return out;
}

// Reads the results after the arrow.
Result<std::vector<AuditArray>> read_results(const Program& p, uint32_t at) {
  const Tokens& t = p.m.tokens;
  std::vector<AuditArray> out;
  const bool listed = t[at].is('(');
  const uint32_t close = listed ? t[at].match : 0;
  if (listed && ++at == close) return out;
  for (;;) {
    const std::string name = fmt::format("result {}", out.size());
    auto array = read_array(p, {name, name, "a result", t[at].line}, at);
    if (!array) return array.error();
    out.push_back(std::move(*array));
    if (!listed || at == close) return out;
    if (!t[at].is(',')) return unread(t[at], "',' or ')'");
    ++at;
  }
}

}  // namespace

Result<MainFunction> read_main(const Program& p) {
  const Tokens& t = p.m.tokens;
  MainFunction out;
  for (uint32_t i = 0; i < p.m.ops.size(); ++i) {
    const Op& op = p.m.ops[i];
    if (op.name != "func.func") continue;
    uint32_t at = op.head + 1;
    const bool is_private = t[at].is_word("private");
    if (t[at].kind == Kind::word) ++at;
    if (t[at].kind != Kind::symbol || !t[at + 1].is('(')) {
      return unread(t[at], "a function's name and its parameters");
    }
    if (unescape(t[at].text) != "@main" && t[at].text != "@\"main\"") continue;
    if (is_private || out.op != kNone) {
      return invalid("audit",
                     "the function main must be public and stand once, found "
                     "{} on line {}",
                     is_private ? "it private" : "another", op.line);
    }
    out.op = i;
    auto arguments = read_arguments(p, ++at);
    if (!arguments) return arguments.error();
    out.arguments = std::move(*arguments);
    at = t[at].match + 1;
    if (t[at].kind != Kind::arrow) continue;
    auto results = read_results(p, at + 1);
    if (!results) return results.error();
    out.results = std::move(*results);
  }
  if (out.op == kNone) {
    return invalid("audit", "a program must have a function main, found none");
  }
  return out;
}

}  // namespace tessera::audit
