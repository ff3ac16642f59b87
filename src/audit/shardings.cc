// audit/shardings.cc: reads and writes Shardy meshes and shardings.
#include <algorithm>
#include <charconv>

#include "audit/arrays.h"
#include "base/fail.h"
#include "base/text.h"

namespace tessera::audit {
namespace {

constexpr size_t kMaxAxes = 64;

std::optional<int64_t> number(const Token& t) {
  int64_t out = 0;
  const char* const end = t.text.data() + t.text.size();
  if (t.kind != Kind::word) return {};
  const auto [at, error] = std::from_chars(t.text.data(), end, out);
  if (error != std::errc{} || at != end || out < 0) return {};
  return out;
}

bool is_plain(std::string_view name) {
  const auto letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  return !name.empty() && letter(name.front()) &&
         std::all_of(name.begin(), name.end(), [&](char c) {
           return letter(c) || (c >= '0' && c <= '9');
         });
}

// The name in double quotes, with escapes for quotes and backslashes.
std::string quoted_name(std::string_view name) {
  std::string out = "\"";
  for (const char c : on_a_line(name)) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out + "\"";
}

std::string use_text(const AxisUse& a) {
  std::string out = quoted_name(a.name);
  if (a.size > 0) out += fmt::format(":({}){}", a.before, a.size);
  return out;
}

std::string list_text(const std::vector<AxisUse>& axes) {
  std::string out = "{";
  for (const AxisUse& a : axes) {
    if (out.size() > 1) out += ", ";
    out += use_text(a);
  }
  return out + "}";
}

// `"a"` or `"a":(1)2`.
Result<AxisUse> read_axis(const Tokens& t, uint32_t& at) {
  if (t[at].kind != Kind::text) return unread(t[at], "the name of an axis");
  AxisUse out{unescape(t[at].text)};
  ++at;
  if (!t[at].is(':')) return out;
  ++at;
  if (!t[at].is('(') || t[at].match != at + 2) {
    return unread(t[at], "a part of an axis as (1)2");
  }
  const auto before = number(t[at + 1]);
  const auto size = number(t[at + 3]);
  if (!before || !size || *before < 1 || *size < 2) {
    return unread(t[at + 1], "a part of an axis as (1)2");
  }
  out.before = *before;
  out.size = *size;
  at += 4;
  return out;
}

struct Dim {
  std::vector<AxisUse> axes;
  bool open = false;
};

// Reads `{"a", ?}` at its bracket and moves `at` past it.
Result<Dim> read_dim(const Tokens& t, uint32_t& at) {
  if (!t[at].is('{')) return unread(t[at], "'{' of a dimension");
  const uint32_t close = t[at].match;
  Dim out;
  for (++at; at != close;) {
    if (t[at].is('?')) {
      out.open = true;
      ++at;
    } else {
      auto axis = read_axis(t, at);
      if (!axis) return axis.error();
      out.axes.push_back(std::move(*axis));
    }
    if (at != close && !t[at].is(',')) return unread(t[at], "',' or '}'");
    if (t[at].is(',')) ++at;
  }
  ++at;
  // `p0`, a propagation priority, has no effect on a complete sharding.
  if (t[at].kind == Kind::word && t[at].text.front() == 'p') ++at;
  return out;
}

}  // namespace

Result<std::vector<AxisUse>> read_axes(const Tokens& t, uint32_t at) {
  auto dim = read_dim(t, at);
  if (!dim) return dim.error();
  return std::move(dim->axes);
}

Result<AuditMesh> read_mesh(const Tokens& t, uint32_t at,
                            std::string_view name) {
  AuditMesh out;
  out.name = on_a_line(name.substr(1));
  if (!t[at].is('<') || !t[at + 1].is('['))
    return unread(t[at], "'<[' of a mesh");
  const uint32_t end = t[at].match;
  const uint32_t close = t[at + 1].match;
  for (at += 2; at != close;) {
    if (t[at].kind != Kind::text) return unread(t[at], "the name of an axis");
    MeshAxis axis{unescape(t[at].text), 1};
    const auto size = t[at + 1].is('=') ? number(t[at + 2]) : std::nullopt;
    if (!size || *size < 1) {
      return invalid("audit",
                     "an axis must have a size from 1 on, found none for {} on "
                     "line {}",
                     in_quotes(axis.name), t[at].line);
    }
    axis.size = *size;
    for (const MeshAxis& other : out.axes) {
      if (other.name != axis.name) continue;
      return invalid("audit",
                     "an axis must stand once in a mesh, found two for {} on "
                     "line {}",
                     in_quotes(axis.name), t[at].line);
    }
    const auto devices = product(out.devices, axis.size);
    if (!devices) {
      return over_limit("audit",
                        "a mesh must have at most 2^63 devices, found more on "
                        "line {}",
                        t[at].line);
    }
    if (out.axes.size() == kMaxAxes) {
      return over_limit("audit",
                        "a mesh must have at most {} axes, found more on line "
                        "{}",
                        kMaxAxes, t[at].line);
    }
    out.devices = *devices;
    out.axes.push_back(std::move(axis));
    at += 3;
    if (at != close && !t[at].is(',')) return unread(t[at], "',' or ']'");
    if (t[at].is(',')) ++at;
  }
  if (++at == end) return out;
  if (!t[at].is(',') || !t[at + 1].is_word("device_ids") ||
      !t[at + 2].is('=') || !t[at + 3].is('[') || t[at + 3].match + 1 != end) {
    return unread(t[at], "device_ids of a mesh, or its end,");
  }
  for (uint32_t i = at + 4; i < t[at + 3].match; ++i) {
    if (!t[i].is(',') && !number(t[i]))
      return unread(t[i], "a device's number");
    out.order += t[i].text;
  }
  return out;
}

Result<Sharding> read_sharding(const Tokens& t, uint32_t at) {
  Sharding out;
  out.line = t[at].line;
  if (!t[at].is('<')) return unread(t[at], "'<' of a sharding");
  const uint32_t end = t[at].match;
  if (t[at + 1].kind != Kind::symbol) {
    return unread(t[at + 1], "the name of a mesh");
  }
  out.mesh = std::string(t[at + 1].text);
  if (!t[at + 2].is(',') || !t[at + 3].is('[')) {
    return unread(t[at + 2], "', [' of a sharding");
  }
  const uint32_t close = t[at + 3].match;
  for (at += 4; at != close;) {
    auto dim = read_dim(t, at);
    if (!dim) return dim.error();
    if (dim->open && !out.open) out.open = out.dims.size();
    out.dims.push_back(std::move(dim->axes));
    if (at != close && !t[at].is(',')) return unread(t[at], "',' or ']'");
    if (t[at].is(',')) ++at;
  }
  for (++at; at != end; at = t[at + 3].match + 1) {
    const bool known =
        t[at + 1].is_word("replicated") || t[at + 1].is_word("unreduced");
    if (!t[at].is(',') || !known || !t[at + 2].is('=') || !t[at + 3].is('{')) {
      return unread(t[at], "replicated, unreduced or the end of a sharding");
    }
    auto axes = read_axes(t, at + 3);
    if (!axes) return axes.error();
    (t[at + 1].is_word("unreduced") ? out.unreduced : out.replicated) =
        std::move(*axes);
  }
  return out;
}

std::string text_of(const Sharding& s) {
  std::string out = "[";
  for (const auto& axes : s.dims) {
    if (out.size() > 1) out += ", ";
    out += list_text(axes);
  }
  out += "]";
  if (!s.replicated.empty()) out += ", replicated=" + list_text(s.replicated);
  if (!s.unreduced.empty()) out += ", unreduced=" + list_text(s.unreduced);
  return out;
}

std::string text_of(const AuditMesh& mesh) {
  std::string out;
  for (const MeshAxis& a : mesh.axes) {
    out += fmt::format("{}{}={}", out.empty() ? "" : ",",
                       is_plain(a.name) ? a.name : quoted_name(a.name), a.size);
  }
  if (!mesh.order.empty()) out += fmt::format(" devices {}", mesh.order);
  return out;
}

}  // namespace tessera::audit
