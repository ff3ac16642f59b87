// lanes/jax_bridge/bound_call.cc: compares a batch with the artifact's
// declaration, and places its arrays in the order of the program.
#include "lanes/jax_bridge/bound_call.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "base/fail.h"
#include "base/text.h"
#include "base/trace.h"
#include "lanes/jax_bridge/attention.h"
#include "lanes/jax_bridge/roles.h"

namespace tessera::bridge {
namespace {

constexpr std::string_view kWhere = "bridge";

// Every input that the program takes and every output must have a role.
Result<void> check_roles(const BridgeSpec& spec) {
  std::set<const BridgeArray*> with_role;
  for (const auto& [role, name] : spec.attention->roles) {
    if (is_role(role)) with_role.insert(find_role(spec, role));
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

// A property that must be the same in the call and the artifact, as text.
struct Word {
  std::string_view what;
  std::string declared, asked;
};

std::vector<Word> words_of(const DeclaredAttention& declared,
                           const Request& request, const Facts& facts,
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
  const Picks due = declared.facts.picks.value_or(Picks());
  const Picks picks = facts.picks.value_or(Picks());
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
      {"softcap", number(s.softcap), number(shape.softcap)},
      {"pick heads", number(due.heads), number(picks.heads)},
      {"picks of a query", number(due.k), number(picks.k)}};
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

// The index of a role's array among the spec's inputs or outputs.
std::optional<size_t> place_of(const BridgeSpec& spec, std::string_view role) {
  const BridgeArray* array = find_role(spec, role);
  if (!array) return {};
  const auto& among = is_output(spec, *array) ? spec.outputs : spec.inputs;
  return static_cast<size_t>(array - among.data());
}

// The values that a role provides for an input.
struct Fed {
  size_t place = 0;
  std::string role;
  Ints values;
};

// Assigns each fact to its input. Call and artifact must have the same facts.
Result<std::vector<Fed>> feed_facts(const BridgeSpec& spec,
                                    const Facts& facts) {
  Facts given = facts;
  std::optional<Ints> picks;
  if (facts.picks) picks = facts.picks->blocks;
  std::vector<FactRole> roles = fact_roles(given);
  roles.push_back({std::string(kPicksRole), &picks});
  std::vector<Fed> out;
  out.reserve(roles.size() + kSameNames);
  for (const FactRole& f : roles) {
    const auto place = place_of(spec, f.role);
    auto ok = check_presence(f.role, place.has_value(), f.fact->has_value());
    if (!ok) return ok.error();
    if (place) out.push_back({*place, f.role, **f.fact});
  }
  auto ok = check_presence("valid_slot_counts", false,
                           facts.valid_slot_counts.has_value());
  if (!ok) return ok.error();
  return out;
}

// Adds the ids of queries, which follow from the facts. `ids` owns the values.
void feed_query_ids(const BridgeSpec& spec, const Request& request,
                    const Facts& facts, std::vector<Fed>& fed,
                    std::vector<std::vector<int32_t>>& ids) {
  for (int64_t i = 0; i < kSameNames; ++i) {
    const auto place = place_of(spec, query_ids_role(i));
    if (!place) continue;
    const Ints of_keys = *facts.same_ids[static_cast<size_t>(i)];
    ids.push_back(ids_of_queries(request, facts, of_keys));
    fed.push_back({*place, query_ids_role(i), ids.back()});
  }
}

// An input may have several roles, which must then provide the same values.
Result<void> check_shared(const std::vector<Fed>& fed) {
  for (size_t i = 0; i < fed.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (fed[i].place != fed[j].place) continue;
      if (std::ranges::equal(fed[i].values, fed[j].values)) continue;
      return invalid(kWhere,
                     "roles of one input must bring the same, found other "
                     "values for {} and {}",
                     fed[j].role, fed[i].role);
    }
  }
  return {};
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
  auto fed = feed_facts(spec, facts);
  if (!fed) return fed.error();
  if (auto ok = check_roles(spec); !ok) return ok.error();
  auto declared =
      declared_attention(spec, out.arrays_.inputs, out.arrays_.outputs);
  if (!declared) return declared.error();
  // Compares masks too: a mask has names that simplifying drops from its text.
  const bool same = declared->request.masks == request.masks;
  for (const Word& w : words_of(*declared, request, facts, shape)) {
    if (w.declared == w.asked && (same || w.what != "the mask")) continue;
    return invalid(kWhere, "{} must be the artifact's {}, found {}", w.what,
                   w.declared, w.asked);
  }
  feed_query_ids(spec, request, facts, *fed, out.query_ids_);
  if (auto ok = check_shared(*fed); !ok) return ok.error();
  for (const Fed& f : *fed) out.facts_[f.place] = f.values.data();
  out.declared_ = declared->tensors;
  for (size_t i = 0; i < std::size(kTensorRoles); ++i) {
    out.places_[i] = place_of(spec, kTensorRoles[i]);
  }
  return out;
}

// An input with several roles is sent once, so all must give the same array.
Result<void> BoundCall::check_tensors_shared(const ForwardTensors& t) const {
  const void* const given[] = {t.q.data, t.k.data, t.v.data};
  for (size_t i = 0; i < std::size(given); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (places_[i] != places_[j] || given[i] == given[j]) continue;
      return invalid(kWhere,
                     "roles of one input must bring the same, found two arrays "
                     "for {} and {}",
                     kTensorRoles[j], kTensorRoles[i]);
    }
  }
  return {};
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
  if (auto e = check_tensors_shared(t); !e) return e.error();
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
