// lanes/jax_bridge/attention.cc: turns roles into a request, facts and tensors.
#include "lanes/jax_bridge/attention.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/fail.h"
#include "base/shape.h"
#include "base/tensor_rows.h"
#include "base/text.h"
#include "lanes/jax_bridge/roles.h"
#include "mask/bind.h"
#include "mask/canonical.h"

namespace tessera::bridge {
namespace {

using Shape = std::vector<int64_t>;

constexpr std::string_view kWhere = "bridge";

std::string type_text(Dtype dtype, const Shape& shape) {
  return fmt::format("{} [{}]", to_string(dtype), fmt::join(shape, ", "));
}

// [batch, heads, tokens, dim] in the layout's order.
Shape ordered(const BridgeSpec& spec, int64_t batch, int64_t heads,
              int64_t tokens, int64_t dim) {
  if (spec.attention->bshd) return {batch, tokens, heads, dim};
  return {batch, heads, tokens, dim};
}

struct Sizes {
  int64_t batch = 0, heads = 0, kv_heads = 0, q_len = 0, kv_len = 0;
  int64_t head_dim = 0, v_head_dim = 0;
  Dtype dtype = Dtype::f32;
};

Result<const BridgeArray*> needed(const BridgeSpec& spec,
                                  std::string_view role) {
  const BridgeArray* out = find_role(spec, role);
  if (out) return out;
  const auto at = spec.attention->roles.find(std::string(role));
  if (at == spec.attention->roles.end()) {
    return invalid(kWhere, "attention must have the role {}, found none for it",
                   role);
  }
  return invalid(kWhere,
                 "a role must name an input or an output, found {} for {}",
                 in_quotes(at->second), role);
}

// The sizes of a role as [batch, heads, tokens, dim]; none may be 0.
Result<Shape> four_sizes(const BridgeSpec& spec, std::string_view role) {
  auto array = needed(spec, role);
  if (!array) return array.error();
  const Shape& s = (*array)->shape;
  if (s.size() != 4 || std::count(s.begin(), s.end(), 0) > 0) {
    return invalid(kWhere,
                   "{} must have four sizes, none of them 0, found [{}] for {}",
                   role, fmt::join(s, ", "), in_quotes((*array)->name));
  }
  if (spec.attention->bshd) return Shape{s[0], s[2], s[1], s[3]};
  return s;
}

Result<Sizes> sizes_of(const BridgeSpec& spec) {
  auto q = four_sizes(spec, "q");
  if (!q) return q.error();
  auto k = four_sizes(spec, "k");
  if (!k) return k.error();
  auto v = four_sizes(spec, "v");
  if (!v) return v.error();
  Sizes out;
  out.batch = (*q)[0], out.heads = (*q)[1];
  out.q_len = (*q)[2], out.head_dim = (*q)[3];
  out.kv_heads = (*k)[1], out.kv_len = (*k)[2];
  out.v_head_dim = (*v)[3];
  out.dtype = find_role(spec, "q")->dtype;
  if (!is_float_dtype(out.dtype)) {
    return invalid(kWhere, "q must be F32, BF16 or F16, found {}",
                   to_string(out.dtype));
  }
  if (out.heads % out.kv_heads != 0) {
    return invalid(kWhere,
                   "the heads of k must divide those of q, found {} "
                   "for {}",
                   out.kv_heads, out.heads);
  }
  return out;
}

// The requirements for one role.
struct Rule {
  std::string role;
  bool output = false, needed = false;
  Dtype dtype = Dtype::i32;
  Shape shape;
};

std::vector<Rule> rules_of(const BridgeSpec& spec, const Sizes& s) {
  const auto kv = [&](int64_t dim) {
    return ordered(spec, s.batch, s.kv_heads, s.kv_len, dim);
  };
  const auto q = [&](int64_t dim) {
    return ordered(spec, s.batch, s.heads, s.q_len, dim);
  };
  const Dtype ints = Dtype::i32;
  const Shape of_keys = {s.batch, s.kv_len};
  const Shape of_queries = {s.batch, s.q_len};
  std::vector<Rule> out = {
      {"q", false, true, s.dtype, q(s.head_dim)},
      {"k", false, true, s.dtype, kv(s.head_dim)},
      {"v", false, true, s.dtype, kv(s.v_head_dim)},
      {"out", true, true, s.dtype, q(s.v_head_dim)},
      {"lse", true, false, Dtype::f32, {s.batch, s.heads, s.q_len}},
      {"sink_logits", false, false, Dtype::f32, {s.heads}},
      {"doc_ids", false, false, ints, of_keys},
      {"q_doc_ids", false, false, ints, of_queries},
      {"valid_token_counts", false, false, ints, {s.batch}},
      {"prefix_lengths", false, false, ints, {s.batch}},
      {"q_offsets", false, false, ints, {s.batch}},
      {"tree_enter", false, false, ints, of_keys},
      {"tree_leave", false, false, ints, of_keys},
  };
  out.reserve(out.size() + 2 * kSameNames);
  for (int64_t i = 0; i < kSameNames; ++i) {
    out.push_back({mask::same_fact(i), false, false, ints, of_keys});
    out.push_back({query_ids_role(i), false, false, ints, of_queries});
  }
  return out;
}

// The array of a role. It must exist and be an output, or an input, as said.
Result<const BridgeArray*> on_side(const BridgeSpec& spec,
                                   std::string_view role, bool output) {
  auto array = needed(spec, role);
  if (!array) return array.error();
  if (is_output(spec, **array) != output) {
    return invalid(kWhere, "{} must be an {}, found {}", role,
                   output ? "output" : "input", in_quotes((*array)->name));
  }
  return array;
}

Result<void> check_rule(const BridgeSpec& spec, const Rule& rule) {
  const bool given = spec.attention->roles.contains(rule.role);
  if (!given && !rule.needed) return {};
  auto array = on_side(spec, rule.role, rule.output);
  if (!array) return array.error();
  if ((*array)->dtype != rule.dtype || (*array)->shape != rule.shape) {
    return invalid(kWhere, "{} must be {}, found {} for {}", rule.role,
                   type_text(rule.dtype, rule.shape),
                   type_text((*array)->dtype, (*array)->shape),
                   in_quotes((*array)->name));
  }
  return {};
}

// Picks may have any number per query. Their heads must divide the query heads.
Result<void> check_picks(const BridgeSpec& spec, const Sizes& s) {
  if (!spec.attention->roles.contains(std::string(kPicksRole))) return {};
  auto array = on_side(spec, kPicksRole, false);
  if (!array) return array.error();
  const Shape& p = (*array)->shape;
  if ((*array)->dtype == Dtype::i32 && p.size() == 4 && p[0] == s.batch &&
      p[1] > 0 && s.heads % p[1] == 0 && p[2] == s.q_len && p[3] > 0) {
    return {};
  }
  return invalid(kWhere,
                 "{} must be I32 [{}, a divisor of {} heads, {}, 1 or more], "
                 "found {} for {}",
                 kPicksRole, s.batch, s.heads, s.q_len,
                 type_text((*array)->dtype, p), in_quotes((*array)->name));
}

// Checks that each fact that the mask names has an array, and that ids of
// queries come with those of keys.
Result<void> check_named(const BridgeSpec& spec, const Names& names) {
  std::vector<std::string> roles;
  roles.reserve(5 + kSameNames);
  if (names.documents || names.segments) roles.emplace_back("doc_ids");
  if (names.prefix) roles.emplace_back("prefix_lengths");
  if (names.tree) {
    roles.emplace_back("tree_enter");
    roles.emplace_back("tree_leave");
  }
  if (names.picks) roles.emplace_back(kPicksRole);
  for (int64_t i = 0; i < kSameNames; ++i) {
    if ((names.same >> i & 1) != 0 || find_role(spec, query_ids_role(i))) {
      roles.push_back(mask::same_fact(i));
    }
  }
  for (const std::string& role : roles) {
    if (auto array = needed(spec, role); !array) return array.error();
  }
  return {};
}

Result<Request> request_of(const BridgeSpec& spec, const Sizes& sizes) {
  auto mask = parse_mask(spec.attention->mask);
  if (!mask) return mask.error();
  Request out;
  out.masks = {std::move(*mask)};
  out.batch = sizes.batch;
  out.q_len = sizes.q_len;
  out.kv_len = sizes.kv_len;
  if (auto ok = mask::check_request(out); !ok) return ok.error();
  return out;
}

template <class View, class Pointer>
View view_of(const BridgeSpec& spec, Pointer data, const BridgeArray& array) {
  const Shape& s = array.shape;
  return spec.attention->bshd
             ? View::bshd(data, array.dtype, s[0], s[1], s[2], s[3])
             : View::bhsd(data, array.dtype, s[0], s[1], s[2], s[3]);
}

}  // namespace

Result<void> check_counts(const BridgeSpec& spec, size_t inputs,
                          size_t outputs) {
  if (inputs == spec.inputs.size() && outputs == spec.outputs.size()) return {};
  return invalid(kWhere,
                 "there must be {} inputs and {} outputs, found {} and {}",
                 spec.inputs.size(), spec.outputs.size(), inputs, outputs);
}

Result<void> check_attention(const BridgeSpec& spec) {
  auto sizes = sizes_of(spec);
  if (!sizes) return sizes.error();
  for (const Rule& rule : rules_of(spec, *sizes)) {
    if (auto ok = check_rule(spec, rule); !ok) return ok;
  }
  if (auto ok = check_picks(spec, *sizes); !ok) return ok;
  if (spec.attention->softcap < 0) {
    return invalid(kWhere, "attention.softcap must be 0 or more, found {}",
                   spec.attention->softcap);
  }
  auto request = request_of(spec, *sizes);
  if (!request) return request.error();
  return check_named(spec, mask::names_of(*request));
}

Result<DeclaredAttention> declared_attention(
    const BridgeSpec& spec, std::span<const void* const> inputs,
    std::span<void* const> outputs) {
  auto sizes = sizes_of(spec);
  if (!sizes) return sizes.error();
  auto request = request_of(spec, *sizes);
  if (!request) return request.error();
  DeclaredAttention out;
  out.request = std::move(*request);
  out.shape.heads = sizes->heads;
  out.shape.kv_heads = sizes->kv_heads;
  out.shape.head_dim = sizes->head_dim;
  out.shape.v_head_dim = sizes->v_head_dim;
  out.shape.scale = spec.attention->scale;
  out.shape.softcap = spec.attention->softcap;

  const auto input = [&](const BridgeArray& array) {
    return inputs[static_cast<size_t>(&array - spec.inputs.data())];
  };
  const auto output = [&](const BridgeArray& array) {
    return outputs[static_cast<size_t>(&array - spec.outputs.data())];
  };
  const auto tensor = [&](std::string_view role) {
    const BridgeArray& array = *find_role(spec, role);
    return view_of<TensorView>(spec, input(array), array);
  };
  const auto count = [](const BridgeArray& array) {
    return static_cast<size_t>(elements_of(array.shape));
  };
  const auto ints = [&](std::string_view role) -> std::optional<Ints> {
    const BridgeArray* array = find_role(spec, role);
    if (!array) return {};
    return Ints(static_cast<const int32_t*>(input(*array)), count(*array));
  };
  out.tensors.q = tensor("q");
  out.tensors.k = tensor("k");
  out.tensors.v = tensor("v");
  const BridgeArray& made = *find_role(spec, "out");
  out.tensors.out = view_of<MutableTensorView>(spec, output(made), made);
  if (const BridgeArray* lse = find_role(spec, "lse")) {
    out.tensors.lse = {static_cast<float*>(output(*lse)), count(*lse)};
  }
  if (const BridgeArray* sinks = find_role(spec, "sink_logits")) {
    out.tensors.sink_logits = {static_cast<const float*>(input(*sinks)),
                               count(*sinks)};
  }
  for (const FactRole& f : fact_roles(out.facts)) *f.fact = ints(f.role);
  if (const BridgeArray* picks = find_role(spec, kPicksRole)) {
    Picks& of = out.facts.picks.emplace();
    of.blocks = *ints(kPicksRole);
    of.heads = picks->shape[1];
    of.k = picks->shape[3];
  }
  return out;
}

std::vector<int32_t> ids_of_queries(const Request& request, const Facts& facts,
                                    Ints ids_of_keys) {
  const Request& r = request;
  std::vector<int32_t> out(static_cast<size_t>(r.batch * r.q_len), -1);
  for (int64_t b = 0; b < r.batch; ++b) {
    const int64_t offset = mask::q_offset_of(r, facts, b);
    for (int64_t q = 0; q < r.q_len; ++q) {
      const int64_t key = q + offset;
      if (key < 0 || key >= r.kv_len) continue;
      out[static_cast<size_t>(b * r.q_len + q)] =
          ids_of_keys[static_cast<size_t>(b * r.kv_len + key)];
    }
  }
  return out;
}

Result<void> check_query_ids(const BridgeSpec& spec,
                             std::span<const void* const> inputs,
                             const DeclaredAttention& call) {
  for (int64_t i = 0; i < kSameNames; ++i) {
    const std::string role = query_ids_role(i);
    const BridgeArray* array = find_role(spec, role);
    if (!array) continue;
    const auto* found = static_cast<const int32_t*>(
        inputs[static_cast<size_t>(array - spec.inputs.data())]);
    const std::vector<int32_t> due = ids_of_queries(
        call.request, call.facts, *call.facts.same_ids[static_cast<size_t>(i)]);
    const auto at = static_cast<size_t>(
        std::mismatch(due.begin(), due.end(), found).first - due.begin());
    if (at == due.size()) continue;
    const auto q = static_cast<int64_t>(at);
    return invalid(kWhere,
                   "{} must be the ids of {} at the queries' positions, found "
                   "{} for query {} of batch row {}, where {} stands",
                   role, mask::same_fact(i), found[at], q % call.request.q_len,
                   q / call.request.q_len, due[at]);
  }
  return {};
}

}  // namespace tessera::bridge
