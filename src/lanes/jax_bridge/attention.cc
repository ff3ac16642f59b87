// lanes/jax_bridge/attention.cc: roles become a request, facts and tensors.
#include "lanes/jax_bridge/attention.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <tuple>

#include "base/fail.h"
#include "base/shape.h"
#include "base/tensor_rows.h"
#include "base/text.h"
#include "base/trace.h"
#include "mask/bind.h"

namespace tessera::bridge {
namespace {

using Shape = std::vector<int64_t>;

constexpr std::string_view kWhere = "bridge";

struct FactRole {
  std::string_view role;
  std::optional<Ints> Facts::*fact;
};
constexpr FactRole kFactRoles[] = {
    {"doc_ids", &Facts::doc_ids},
    {"q_doc_ids", &Facts::q_doc_ids},
    {"valid_token_counts", &Facts::valid_token_counts},
    {"prefix_lengths", &Facts::prefix_lengths},
    {"q_offsets", &Facts::q_offsets}};

bool is_output(const BridgeSpec& spec, const BridgeArray& array) {
  return &array >= spec.outputs.data() &&
         &array < spec.outputs.data() + spec.outputs.size();
}

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

// Four sizes, none of them 0, in the order [batch, heads, tokens, dim].
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

// What every role must be, of those that there may be.
struct Rule {
  std::string_view role;
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
  return {
      {"q", false, true, s.dtype, q(s.head_dim)},
      {"k", false, true, s.dtype, kv(s.head_dim)},
      {"v", false, true, s.dtype, kv(s.v_head_dim)},
      {"out", true, true, s.dtype, q(s.v_head_dim)},
      {"lse", true, false, Dtype::f32, {s.batch, s.heads, s.q_len}},
      {"sink_logits", false, false, Dtype::f32, {s.heads}},
      {"doc_ids", false, false, ints, {s.batch, s.kv_len}},
      {"q_doc_ids", false, false, ints, {s.batch, s.q_len}},
      {"valid_token_counts", false, false, ints, {s.batch}},
      {"prefix_lengths", false, false, ints, {s.batch}},
      {"q_offsets", false, false, ints, {s.batch}},
  };
}

Result<void> check_rule(const BridgeSpec& spec, const Rule& rule) {
  const bool given = spec.attention->roles.contains(std::string(rule.role));
  if (!given && !rule.needed) return {};
  auto array = needed(spec, rule.role);
  if (!array) return array.error();
  if (is_output(spec, **array) != rule.output) {
    return invalid(kWhere, "{} must be an {}, found {}", rule.role,
                   rule.output ? "output" : "input", in_quotes((*array)->name));
  }
  if ((*array)->dtype != rule.dtype || (*array)->shape != rule.shape) {
    return invalid(kWhere, "{} must be {}, found {} for {}", rule.role,
                   type_text(rule.dtype, rule.shape),
                   type_text((*array)->dtype, (*array)->shape),
                   in_quotes((*array)->name));
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

Result<void> check_attention(const BridgeSpec& spec) {
  auto sizes = sizes_of(spec);
  if (!sizes) return sizes.error();
  for (const Rule& rule : rules_of(spec, *sizes)) {
    if (auto ok = check_rule(spec, rule); !ok) return ok;
  }
  if (spec.attention->softcap < 0) {
    return invalid(kWhere, "attention.softcap must be 0 or more, found {}",
                   spec.attention->softcap);
  }
  auto request = request_of(spec, *sizes);
  if (!request) return request.error();
  const Names names = mask::names_of(*request);
  struct Fact {
    bool named;
    const char* role;
  };
  for (const Fact& fact : {Fact{names.documents || names.segments, "doc_ids"},
                           Fact{names.prefix, "prefix_lengths"}}) {
    if (!fact.named) continue;
    if (auto array = needed(spec, fact.role); !array) return array.error();
  }
  if (names.tree) {
    return invalid(kWhere, "attention.mask must name no tree, found {}",
                   in_quotes(spec.attention->mask));
  }
  if (names.same != 0) {
    return invalid(kWhere, "attention.mask must name no same, found {}",
                   in_quotes(spec.attention->mask));
  }
  if (names.picks) {
    return invalid(kWhere,
                   "attention.mask must name no picks of blocks, found {}",
                   in_quotes(spec.attention->mask));
  }
  return {};
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
  for (const FactRole& f : kFactRoles) out.facts.*f.fact = ints(f.role);
  return out;
}

namespace {

constexpr std::string_view kTensorRoles[] = {"q",   "k",   "v",
                                             "out", "lse", "sink_logits"};

// Every array must have a role, unless the program does not take it.
Result<void> check_roles(const BridgeSpec& spec) {
  std::set<const BridgeArray*> with_role;
  for (const std::string_view role : kTensorRoles) {
    with_role.insert(find_role(spec, role));
  }
  for (const FactRole& f : kFactRoles) {
    with_role.insert(find_role(spec, f.role));
  }
  for (const int64_t kept : spec.kept_inputs) {
    const auto i = static_cast<size_t>(kept);
    if (i < spec.inputs.size() && with_role.contains(&spec.inputs[i])) continue;
    return invalid(kWhere,
                   "to run as attention, each input must have a role, found "
                   "none for {}",
                   i < spec.inputs.size() ? in_quotes(spec.inputs[i].name)
                                          : fmt::to_string(kept));
  }
  for (const BridgeArray& output : spec.outputs) {
    if (with_role.contains(&output)) continue;
    return invalid(kWhere,
                   "to run as attention, each output must have a role, found "
                   "none for {}",
                   in_quotes(output.name));
  }
  return {};
}

Result<void> check_presence(std::string_view role, bool declared, bool given) {
  if (declared == given) return {};
  return invalid(kWhere, "{} must be {}, as the artifact has {}, found {}",
                 role, declared ? "given" : "absent", declared ? "it" : "none",
                 declared ? "none" : "some");
}

// What a call and an artifact must have in common, as words.
struct Word {
  std::string_view what;
  std::string declared, asked;
};

std::vector<Word> words_of(const DeclaredAttention& declared,
                           const Request& request,
                           const AttentionShape& shape) {
  const Request& r = declared.request;
  const AttentionShape& s = declared.shape;
  const auto mask = [](const Request& of) {
    std::vector<std::string> texts;
    for (const Mask& m : of.masks) {
      texts.push_back(to_string(m));
    }
    return fmt::format("{}", fmt::join(texts, "; "));
  };
  const auto number = [](auto value) { return fmt::to_string(value); };
  return {
      {"the mask", mask(r), mask(request)},
      {"batch", number(r.batch), number(request.batch)},
      {"q_len", number(r.q_len), number(request.q_len)},
      {"kv_len", number(r.kv_len), number(request.kv_len)},
      {"heads", number(s.heads), number(shape.heads)},
      {"kv_heads", number(s.kv_heads), number(shape.kv_heads)},
      {"head_dim", number(s.head_dim), number(shape.head_dim)},
      {"v_head_dim", number(s.v_head_dim), number(shape.v_head_dim)},
      {"scale", number(s.scale_or_default()), number(shape.scale_or_default())},
      {"softcap", number(s.softcap), number(shape.softcap)}};
}

auto layout_of(const TensorView& t) {
  return std::tie(t.dtype, t.batch, t.heads, t.tokens, t.dim, t.batch_stride,
                  t.head_stride, t.token_stride);
}

std::string layout_text(const TensorView& t) {
  return fmt::format("{} [{}, {}, {}, {}] with strides {}, {}, {}",
                     to_string(t.dtype), t.batch, t.heads, t.tokens, t.dim,
                     t.batch_stride, t.head_stride, t.token_stride);
}

// Where an array of that role goes among the spec's inputs or outputs.
std::optional<size_t> place_of(const BridgeSpec& spec, std::string_view role) {
  const BridgeArray* array = find_role(spec, role);
  if (!array) return {};
  const auto& among = is_output(spec, *array) ? spec.outputs : spec.inputs;
  return static_cast<size_t>(array - among.data());
}

}  // namespace

Result<BoundCall> BoundCall::bind(const BridgeSpec& spec,
                                  const Request& request, const Facts& facts,
                                  const AttentionShape& shape) {
  const TraceSpan span("bridge", "bind");
  if (!spec.attention) {
    return invalid(kWhere,
                   "to run as attention, an artifact must declare it, found "
                   "{}",
                   in_quotes(spec.operation));
  }
  if (auto ok = check_attention(spec); !ok) return ok.error();
  BoundCall out;
  out.facts_.resize(spec.inputs.size());
  out.arrays_.inputs.resize(spec.inputs.size());
  out.arrays_.outputs.resize(spec.outputs.size());
  for (const FactRole& f : kFactRoles) {
    const auto place = place_of(spec, f.role);
    const std::optional<Ints>& fact = facts.*f.fact;
    auto ok = check_presence(f.role, place.has_value(), fact.has_value());
    if (!ok) return ok.error();
    if (place) out.facts_[*place] = fact->data();
  }
  if (facts.valid_slot_counts || facts.picks) {
    return invalid(kWhere,
                   "an artifact takes no slot counts or picks, found {}",
                   facts.picks ? "picks" : "slot counts");
  }
  if (auto ok = check_roles(spec); !ok) return ok.error();
  auto declared = declared_attention(spec, out.facts_, out.arrays_.outputs);
  if (!declared) return declared.error();
  // Words that simplification drops are part of a mask, though not of its text.
  const bool same = declared->request.masks == request.masks;
  for (const Word& w : words_of(*declared, request, shape)) {
    if (w.declared == w.asked && (same || w.what != "the mask")) continue;
    return invalid(kWhere, "{} must be the artifact's {}, found {}", w.what,
                   w.declared, w.asked);
  }
  out.declared_ = declared->tensors;
  for (size_t i = 0; i < std::size(kTensorRoles); ++i) {
    out.places_[i] = place_of(spec, kTensorRoles[i]);
  }
  return out;
}

Result<const ArrayPointers*> BoundCall::place(const ForwardTensors& t) {
  const ForwardTensors& d = declared_;
  for (const auto& [role, declared, given] :
       {std::tuple("q", d.q, t.q),
        {"k", d.k, t.k},
        {"v", d.v, t.v},
        {"out", as_input(d.out), as_input(t.out)}}) {
    if (layout_of(declared) == layout_of(given)) continue;
    return invalid(kWhere, "{} must be the artifact's {}, found {}", role,
                   layout_text(declared), layout_text(given));
  }
  const auto& [q, k, v, out, lse, sinks] = places_;
  if (auto e = check_presence("lse", lse.has_value(), !t.lse.empty()); !e) {
    return e.error();
  }
  auto e = check_presence("sink_logits", sinks.has_value(),
                          t.sink_logits.has_value());
  if (!e) return e.error();
  arrays_.inputs[*q] = t.q.data;
  arrays_.inputs[*k] = t.k.data;
  arrays_.inputs[*v] = t.v.data;
  arrays_.outputs[*out] = t.out.data;
  if (lse) arrays_.outputs[*lse] = t.lse.data();
  if (sinks) arrays_.inputs[*sinks] = t.sink_logits->data();
  return &arrays_;
}

}  // namespace tessera::bridge
