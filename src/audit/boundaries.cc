// audit/boundaries.cc: sdy.manual_computation, sdy.sharding_constraint, and the
// custom calls for both in the old form.
#include "audit/boundaries.h"

#include <set>

#include "base/fail.h"
#include "base/text.h"

namespace tessera::audit {
namespace {

using Found = std::optional<AuditBoundary>;

Result<Signature> signature_of(const Module& m, const Op& op) {
  const auto types = find_types(m, op);
  if (!types) {
    return invalid("audit",
                   "an operation must tell its types, found none for {} on "
                   "line {}",
                   op.name, op.line);
  }
  return read_signature(m.tokens, *types + 1);
}

AuditBoundary boundary(const Op& op) {
  return {std::string(op.name), op.line, {}};
}

// `in_shardings=[<@mesh, [...]>, ...]`, or the attribute of the quoted form.
Result<std::vector<Sharding>> read_shardings(const Program& p, const Op& op,
                                             std::string_view key) {
  const Tokens& t = p.m.tokens;
  const auto found = find_key(p.m, op, key);
  if (!found) {
    return invalid("audit",
                   "a boundary must have its {}, found none for {} on line {}",
                   key, op.name, op.line);
  }
  uint32_t at = resolve(p.m, *found);
  if (t[at].text == "#sdy.sharding_per_value") at += 2;
  if (!t[at].is('[')) return unread(t[at], "'[' of shardings");
  const uint32_t close = t[at].match;
  std::vector<Sharding> out;
  for (++at; at != close;) {
    auto sharding = read_sharding(t, at);
    if (!sharding) return sharding.error();
    out.push_back(std::move(*sharding));
    at = t[at].match + 1;
    if (at != close && !t[at].is(',')) return unread(t[at], "',' or ']'");
    if (t[at].is(',')) ++at;
  }
  return out;
}

// Places the arrays of one side, each by its own sharding.
Result<std::vector<AuditArray>> place_all(const Program& p, const Op& op,
                                          std::string_view side,
                                          const std::vector<Sharding>& how,
                                          const std::vector<Type>& types) {
  if (how.size() != types.size()) {
    return invalid("audit",
                   "each array of a boundary must have a sharding, found {} "
                   "for the {} that go {} {} on line {}",
                   how.size(), types.size(), side, op.name, op.line);
  }
  std::vector<AuditArray> out;
  for (size_t i = 0; i < how.size(); ++i) {
    const std::string name = fmt::format("{} {}", side, i);
    auto array =
        place(p.meshes, how[i], types[i],
              fmt::format("{} of {} on line {}", name, op.name, op.line));
    if (!array) return array.error();
    array->name = name;
    out.push_back(std::move(*array));
  }
  return out;
}

// All mesh axes must be manual, so that the compiler partitions nothing.
Result<void> check_all_manual(const Program& p, const Op& op,
                              const std::vector<Sharding>& shardings) {
  const Tokens& t = p.m.tokens;
  const auto found = find_key(p.m, op, "manual_axes");
  if (!found) {
    return invalid("audit",
                   "a boundary must have its manual_axes, found none for {} on "
                   "line {}",
                   op.name, op.line);
  }
  uint32_t at = resolve(p.m, *found);
  // #sdy<manual_axes{"a"}>
  if (t[at].text == "#sdy" && t[at + 2].is_word("manual_axes")) at += 3;
  if (!t[at].is('{')) return unread(t[at], "'{' of manual_axes");
  auto axes = read_axes(t, at);
  if (!axes) return axes.error();
  std::set<std::string_view> manual, meshes;
  for (const AxisUse& use : *axes) {
    if (use.size == 0) manual.insert(use.name);
  }
  for (const Sharding& s : shardings) meshes.insert(s.mesh);
  for (const std::string_view mesh : meshes) {
    for (const MeshAxis& axis : p.meshes.by_name.find(mesh)->second.axes) {
      if (manual.contains(axis.name)) continue;
      return invalid("audit",
                     "all axes of a mesh must be manual within a "
                     "computation, found {} left to the compiler for {} on "
                     "line {}",
                     in_quotes(axis.name), op.name, op.line);
    }
  }
  return {};
}

// Checks the inner arrays against a device's parts of the outer arrays.
Result<void> check_parts(const Op& op, const std::vector<AuditArray>& wholes,
                         const std::vector<Type>& parts) {
  if (wholes.size() != parts.size()) {
    return invalid("audit",
                   "a computation must have as many arrays within as without, "
                   "found {} for {} of {} on line {}",
                   parts.size(), wholes.size(), op.name, op.line);
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    const AuditArray& whole = wholes[i];
    const Type part = {whole.dtype, whole.part, parts[i].bits};
    if (part == parts[i]) continue;
    return invalid("audit",
                   "a device must have its part {}, found {} for {} of {} on "
                   "line {}",
                   to_string(part), to_string(parts[i]), whole.name, op.name,
                   op.line);
  }
  return {};
}

// The types of `(%a: type, ...)` before the region, or of its first block.
Result<std::vector<Type>> inner_arguments(const Module& m, const Op& op) {
  const Tokens& t = m.tokens;
  uint32_t region = op.head;
  while (region < op.end && !t[region].opens_region) ++region;
  if (region == op.end) {
    return invalid("audit",
                   "a computation must have a body, found none for {} "
                   "on line {}",
                   op.name, op.line);
  }
  std::vector<Type> out;
  uint32_t at = 0;
  if (t[region + 1].kind == Kind::block) {
    if (!t[region + 2].is('(')) return out;
    at = region + 2;
  } else {
    if (!t[region - 1].is(')')) return out;
    at = t[region - 1].match;
  }
  const uint32_t close = t[at].match;
  for (++at; at != close;) {
    if (t[at].kind != Kind::value || !t[at + 1].is(':')) {
      return unread(t[at], "an argument as %name: type");
    }
    at += 2;
    auto type = read_type(t, at);
    if (!type) return type.error();
    out.push_back(std::move(*type));
    if (at != close && !t[at].is(',')) return unread(t[at], "',' or ')'");
    if (t[at].is(',')) ++at;
  }
  return out;
}

// The types of the sdy.return that ends the computation.
Result<std::vector<Type>> inner_results(const Module& m, uint32_t index) {
  const Op* last = nullptr;
  for (size_t i = index + 1;
       i < m.ops.size() && m.ops[i].head < m.ops[index].end; ++i) {
    if (m.ops[i].parent == index) last = &m.ops[i];
  }
  if (last == nullptr || last->name != "sdy.return") {
    return invalid("audit",
                   "a computation must end in sdy.return, found none for {} on "
                   "line {}",
                   m.ops[index].name, m.ops[index].line);
  }
  if (!find_types(m, *last)) return std::vector<Type>();
  auto signature = signature_of(m, *last);
  if (!signature) return signature.error();
  return std::move(signature->operands);
}

Result<Found> read_manual(const Program& p, uint32_t index) {
  const Op& op = p.m.ops[index];
  auto signature = signature_of(p.m, op);
  if (!signature) return signature.error();
  AuditBoundary out = boundary(op);
  std::vector<Sharding> all;
  for (const bool in : {true, false}) {
    auto shardings =
        read_shardings(p, op, in ? "in_shardings" : "out_shardings");
    if (!shardings) return shardings.error();
    auto arrays = place_all(p, op, in ? "in" : "out", *shardings,
                            in ? signature->operands : signature->results);
    if (!arrays) return arrays.error();
    auto parts = in ? inner_arguments(p.m, op) : inner_results(p.m, index);
    if (!parts) return parts.error();
    if (auto e = check_parts(op, *arrays, *parts); !e) return e.error();
    out.arrays.insert(out.arrays.end(), arrays->begin(), arrays->end());
    all.insert(all.end(), shardings->begin(), shardings->end());
  }
  if (auto e = check_all_manual(p, op, all); !e) return e.error();
  return Found(std::move(out));
}

// `sdy.sharding_constraint %0 <@mesh, [{}]> : type`
Result<Found> read_constraint(const Program& p, const Op& op) {
  const Tokens& t = p.m.tokens;
  auto signature = signature_of(p.m, op);
  if (!signature) return signature.error();
  uint32_t at = op.head + 1;
  if (const auto key = find_key(p.m, op, "sharding"); op.quoted && key) {
    at = resolve(p.m, *key);
    if (t[at].text == "#sdy.sharding") ++at;
  } else {
    while (at < op.end && !t[at].is('<') && !t[at].is(':')) ++at;
  }
  if (!t[at].is('<')) {
    return invalid("audit",
                   "a boundary must have a sharding, found none for {} on line "
                   "{}",
                   op.name, op.line);
  }
  auto sharding = read_sharding(t, at);
  if (!sharding) return sharding.error();
  AuditBoundary out = boundary(op);
  auto arrays = place_all(p, op, "at", {*sharding}, signature->results);
  if (!arrays) return arrays.error();
  out.arrays = std::move(*arrays);
  return Found(std::move(out));
}

Result<Found> read_custom_call(const Program& p, const Op& op) {
  const std::string target = call_target(p.m, op);
  if (target.starts_with("xla.sdy.")) {
    return invalid("audit",
                   "an operation must be one that an audit can read, found {} "
                   "on line {}",
                   in_quotes(target), op.line);
  }
  if (target != "Sharding" && target != "SPMDFullToShardShape" &&
      target != "SPMDShardToFullShape") {
    return Found();
  }
  const Tokens& t = p.m.tokens;
  const auto key = find_key(p.m, op, "mhlo.sharding");
  if (!key || t[*key].kind != Kind::text) {
    return invalid("audit",
                   "a boundary must have a sharding, found none for {} on line "
                   "{}",
                   in_quotes(target), op.line);
  }
  auto signature = signature_of(p.m, op);
  if (!signature) return signature.error();
  AuditBoundary out = boundary(op);
  out.op = target;
  for (const Type& type : signature->results) {
    auto array = place_tiled(p.meshes, unescape(t[*key].text), type, target,
                             op.line, true);
    if (!array) return array.error();
    array->name = fmt::format("at {}", out.arrays.size());
    out.arrays.push_back(std::move(*array));
  }
  return Found(std::move(out));
}

}  // namespace

Result<Found> read_boundary(const Program& p, uint32_t op) {
  const std::string_view name = p.m.ops[op].name;
  if (name == "sdy.manual_computation") return read_manual(p, op);
  if (name == "sdy.sharding_constraint" || name == "sdy.reshard") {
    return read_constraint(p, p.m.ops[op]);
  }
  if (name == "stablehlo.custom_call") return read_custom_call(p, p.m.ops[op]);
  return Found();
}

}  // namespace tessera::audit
