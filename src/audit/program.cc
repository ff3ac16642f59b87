// audit/program.cc: reads the meshes and devices, and checks the whole text.
#include "audit/program.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "audit/collectives.h"
#include "base/fail.h"
#include "base/text.h"

namespace tessera::audit {
namespace {

constexpr std::string_view kShardy = "sdy.";
constexpr std::string_view kReadable[] = {
    "sdy.mesh", "sdy.manual_computation", "sdy.return",
    "sdy.sharding_constraint", "sdy.reshard"};
constexpr const char* kNoForm =
    "a module, a function and a mesh must be written in their own form, found "
    "\"{}\" on line {}";

Result<int64_t> count_of(const Module& m, const Op& module,
                         std::string_view key, std::optional<int64_t> other) {
  const auto at = find_key(m, module, key);
  if (!at && other) return *other;
  int64_t n = 0;
  if (at) {
    const Token& t = m.tokens[*at];
    const char* const end = t.text.data() + t.text.size();
    const auto [stop, error] = std::from_chars(t.text.data(), end, n);
    if (t.kind == Kind::word && error == std::errc{} && stop == end && n >= 1 &&
        n <= kMaxDevices) {
      return n;
    }
  }
  return invalid("audit", "a module must say {} = 1 to {}, found {} on line {}",
                 key, kMaxDevices, at ? in_quotes(m.tokens[*at].text) : "none",
                 module.line);
}

Result<void> read_devices(Program& p) {
  const Op* module = nullptr;
  for (const Op& op : p.m.ops) {
    if (op.name != "module") continue;
    if (module != nullptr) {
      return invalid("audit",
                     "a program must be one module, found another on line {}",
                     op.line);
    }
    module = &op;
  }
  if (module == nullptr) {
    return invalid("audit", "a program must be a module, found none");
  }
  auto partitions = count_of(p.m, *module, "mhlo.num_partitions", {});
  if (!partitions) return partitions.error();
  auto replicas = count_of(p.m, *module, "mhlo.num_replicas", 1);
  if (!replicas) return replicas.error();
  p.meshes.partitions = *partitions;
  p.devices = *partitions * *replicas;  // both are at most 2^20
  if (p.devices > kMaxDevices) {
    return over_limit("audit",
                      "a program must be for at most {} devices, found {}",
                      kMaxDevices, p.devices);
  }
  return {};
}

// `sdy.mesh @mesh = <["a"=2]>`
Result<void> read_meshes(Program& p) {
  for (const Op& op : p.m.ops) {
    if (op.name != "sdy.mesh") continue;
    const Token* const t = &p.m.tokens[op.head];
    if (t[1].kind != Kind::symbol) return unread(t[1], "the name of a mesh");
    if (!t[2].is('=')) return unread(t[2], "'=' of a mesh");
    auto mesh = read_mesh(p.m.tokens, op.head + 3, t[1].text);
    if (!mesh) return mesh.error();
    // A mesh without axes is one device.
    if (mesh->devices != p.devices && !mesh->axes.empty()) {
      return invalid("audit",
                     "a mesh must have the {} devices of its module, found {} "
                     "for {} on line {}",
                     p.devices, mesh->devices, in_quotes(t[1].text), op.line);
    }
    const std::string name(t[1].text);
    if (!p.meshes.by_name.emplace(name, std::move(*mesh)).second) {
      return invalid("audit",
                     "a mesh must be defined once, found another {} on line {}",
                     in_quotes(name), op.line);
    }
    p.mesh_names.push_back(name);
  }
  return {};
}

// Words that matter to an audit may appear only where an operation was found.
Result<void> check_words(const Module& m) {
  std::vector<uint8_t> is_head(m.tokens.size(), 0);
  for (const Op& op : m.ops) {
    is_head[op.head] = 1;
    const bool own_form = op.name == "sdy.mesh" || op.name == "func.func" ||
                          op.name == "builtin.module";
    if (op.quoted && own_form) {
      return invalid("audit", kNoForm, op.name, op.line);
    }
  }
  const auto known = [](std::string_view name) {
    return std::find(std::begin(kReadable), std::end(kReadable), name) !=
           std::end(kReadable);
  };
  for (size_t i = 0; i + kEnds < m.tokens.size(); ++i) {
    const Token& t = m.tokens[i];
    const bool may_name = (t.kind == Kind::word && !m.tokens[i + 1].is('=')) ||
                          (t.kind == Kind::text && m.tokens[i + 1].is('('));
    const bool shardy = may_name && t.text.starts_with(kShardy);
    const bool matters = shardy || (may_name && is_collective(t.text)) ||
                         (may_name && t.text == "func.func");
    if (!matters || (is_head[i] != 0 && (!shardy || known(t.text)))) continue;
    return invalid("audit",
                   "an operation must be one that an audit can read, found {} "
                   "on line {}",
                   in_quotes(t.text), t.line);
  }
  return {};
}

// Checks all shardings, also of inner values and private functions.
Result<void> check_shardings(const Program& p) {
  const Tokens& t = p.m.tokens;
  const auto check = [&](uint32_t at) -> Result<void> {
    auto sharding = read_sharding(t, at);
    if (!sharding) return sharding.error();
    auto mesh = check_axes(p.meshes, *sharding, "a sharding");
    if (!mesh) return mesh.error();
    return {};
  };
  for (uint32_t i = 0; i + kEnds < t.size(); ++i) {
    if (t[i].kind != Kind::attribute || !t[i + 1].is('<')) continue;
    if (t[i].text == "#sdy.sharding") {
      if (auto e = check(i + 1); !e) return e;
    } else if (t[i].text == "#sdy.sharding_per_value") {
      for (uint32_t at = i + 2; at < t[i + 1].match; ++at) {
        if (!t[at].is('<')) continue;
        if (auto e = check(at); !e) return e;
        at = t[at].match;
      }
    }
  }
  return {};
}

}  // namespace

uint32_t resolve(const Module& m, uint32_t at) {
  if (m.tokens[at].kind != Kind::attribute) return at;
  const auto alias = m.aliases.find(m.tokens[at].text);
  return alias == m.aliases.end() ? at : alias->second;
}

Result<Program> read_program(std::string_view text) {
  constexpr std::string_view kBytecode = "ML\xefR";
  if (text.starts_with(kBytecode)) {
    return invalid("audit",
                   "a program must be text, found MLIR bytecode "
                   "(stablehlo-translate --deserialize, or mlir_module() of "
                   "what JAX exported, gives text)");
  }
  auto module = read_module(text);
  if (!module) return module.error();
  Program out;
  out.m = std::move(*module);
  if (auto e = check_words(out.m); !e) return e.error();
  if (auto e = read_devices(out); !e) return e.error();
  if (auto e = read_meshes(out); !e) return e.error();
  if (auto e = check_shardings(out); !e) return e.error();
  return out;
}

}  // namespace tessera::audit
