// audit/ops.cc: finds operations; each ends where the next one begins.
#include "audit/ops.h"

#include <algorithm>

#include "base/fail.h"

namespace tessera::audit {
namespace {

constexpr size_t kMaxDepth = 256;

bool all_digits(std::string_view s) {
  return !s.empty() && std::all_of(s.begin(), s.end(),
                                   [](char c) { return c >= '0' && c <= '9'; });
}

// Whether the word names an operation: it has a dialect, or is an exception.
bool names_op(std::string_view word) {
  const bool is_number = word.front() >= '0' && word.front() <= '9';
  return !is_number && (word.find('.') != std::string_view::npos ||
                        word == "module" || word == "return" || word == "call");
}

class Walker {
 public:
  explicit Walker(Module& m) : m_(m), t_(m.tokens) {}

  Result<void> walk() {
    std::vector<Frame> frames = {
        {static_cast<uint32_t>(t_.size() - kEnds), kNone, kNone}};
    for (uint32_t i = 0;;) {
      const Frame f = frames.back();
      if (i == f.close) {
        finish(f.current, i);
        frames.pop_back();
        if (frames.empty()) return {};
        ++i;
        continue;
      }
      if (frames.size() == 1 && t_[i].kind == Kind::attribute &&
          t_[i + 1].is('=')) {
        finish(f.current, i);
        frames.back().current = kNone;
        m_.aliases.emplace(t_[i].text, i + 2);
        i += 2;
        continue;
      }
      if (const uint32_t head = head_at(i); head != kNone) {
        finish(f.current, i);
        frames.back().current = add_op(head, f.parent);
        i = head + 1;
        continue;
      }
      if (!t_[i].opens() || (t_[i].is('(') && t_[i + 1].is('{'))) {
        ++i;
        continue;
      }
      if (f.current == kNone || !is_region(i)) {
        i = t_[i].match + 1;
        continue;
      }
      if (frames.size() > kMaxDepth) {
        return over_limit("audit",
                          "regions must nest at most {} deep, found more on "
                          "line {}",
                          kMaxDepth, t_[i].line);
      }
      t_[i].opens_region = true;
      frames.push_back({t_[i].match, f.current, kNone});
      ++i;
    }
  }

 private:
  struct Frame {
    uint32_t close;
    uint32_t parent;   // the operation that has the region
    uint32_t current;  // the operation being read in the region
  };

  void finish(uint32_t op, uint32_t end) {
    if (op != kNone) m_.ops[op].end = end;
  }

  uint32_t add_op(uint32_t head, uint32_t parent) {
    const Token& t = t_[head];
    const bool loop =
        parent != kNone &&
        (m_.ops[parent].repeats || m_.ops[parent].name == "stablehlo.while");
    m_.ops.push_back(
        {t.text, t.kind == Kind::text, loop, t.line, head, head, parent});
    return static_cast<uint32_t>(m_.ops.size() - 1);
  }

  // The token of the name of the operation that begins here, or kNone.
  uint32_t head_at(uint32_t i) {
    const Token& t = t_[i];
    if (t.kind == Kind::value) return i < listed_ ? kNone : after_results(i);
    if (t.kind == Kind::text) return t_[i + 1].is('(') ? i : kNone;
    if (t.kind != Kind::word || !names_op(t.text) || t_[i + 1].is('=')) {
      return kNone;
    }
    if (i == 0) return i;
    const Token& before = t_[i - 1];
    return before.is('=') || before.is(',') || before.is_word("applies") ? kNone
                                                                         : i;
  }

  // `%0, %1:2 = name`. If a list of values turns out not to be results, its
  // values are not examined again; else long lists would take quadratic time.
  uint32_t after_results(uint32_t i) {
    for (;;) {
      if (t_[i].kind != Kind::value) break;
      ++i;
      if (t_[i].is(':') && t_[i + 1].kind == Kind::word &&
          all_digits(t_[i + 1].text)) {
        i += 2;
      }
      if (t_[i].is('=')) {
        const Kind kind = t_[i + 1].kind;
        return kind == Kind::word || kind == Kind::text ? i + 1 : kNone;
      }
      if (!t_[i].is(',')) break;
      ++i;
    }
    listed_ = i;
    return kNone;
  }

  // A region has operations; other braces hold attributes.
  bool is_region(uint32_t i) const {
    if (t_[i].text != "{") return false;
    const Token& first = t_[i + 1];
    const Token& second = t_[i + 2];
    switch (first.kind) {
      case Kind::value:
      case Kind::block:
        return true;
      case Kind::text:
        return second.is('(');
      case Kind::word:
        return !second.is('=') && !second.is(',') && !second.is('}');
      default:
        return false;
    }
  }

  Module& m_;
  Tokens& t_;
  uint32_t listed_ = 0;
};

}  // namespace

Result<Module> read_module(std::string_view text) {
  auto tokens = read_tokens(text);
  if (!tokens) return tokens.error();
  Module out;
  out.tokens = std::move(*tokens);
  if (auto e = Walker(out).walk(); !e) return e.error();
  return out;
}

std::optional<uint32_t> find_key(const Module& m, const Op& op,
                                 std::string_view key) {
  const Tokens& t = m.tokens;
  for (uint32_t i = op.head + 1; i + 1 < op.end; ++i) {
    if (t[i].opens_region) {
      i = t[i].match;
    } else if (t[i].is_word(key) && t[i + 1].is('=')) {
      return i + 2;
    }
  }
  return {};
}

std::optional<uint32_t> find_types(const Module& m, const Op& op) {
  const Tokens& t = m.tokens;
  std::optional<uint32_t> out;
  for (uint32_t i = op.head + 1; i < op.end; ++i) {
    if (t[i].opens()) {
      i = t[i].match;
    } else if (t[i].is(':')) {
      out = i;
    }
  }
  return out;
}

std::string call_target(const Module& m, const Op& op) {
  const Token& next = m.tokens[op.head + 1];
  if (next.kind == Kind::symbol) {
    std::string_view name = next.text.substr(1);
    if (name.starts_with('"')) name = name.substr(1, name.size() - 2);
    return unescape(name);
  }
  const auto key = find_key(m, op, "call_target_name");
  return key ? unescape(m.tokens[*key].text) : "";
}

}  // namespace tessera::audit
