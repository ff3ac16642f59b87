// lanes/xla/shape.cc: the arguments of a program, by what its masks name.
#include "lanes/xla/shape.h"

#include <algorithm>
#include <numeric>

#include "mask/canonical.h"

namespace tessera::xla {
namespace {

bool has(const Expr& e, Atom atom) {
  return e.atom == atom ||
         std::any_of(e.children.begin(), e.children.end(),
                     [&](const Expr& child) { return has(child, atom); });
}

bool has_sink(const Expr& e) { return has(e, Atom::sink); }

}  // namespace

// If the plan heads divide the K/V heads, a unit is one plan head with its K/V
// heads. Otherwise it is the common part of one plan head and one K/V head.
int64_t Shape::units() const {
  return kv_heads % plan_heads == 0 ? plan_heads
                                    : std::lcm(kv_heads, plan_heads);
}

int64_t Shape::unit_kv_heads() const {
  return std::max<int64_t>(1, kv_heads / units());
}

bool Shape::names_documents() const {
  return std::any_of(masks.begin(), masks.end(),
                     [](const Mask& m) { return m.names.documents; });
}

bool Shape::names_segments() const {
  return std::any_of(masks.begin(), masks.end(),
                     [](const Mask& m) { return m.names.segments; });
}

bool Shape::all_name_ids() const {
  return std::all_of(masks.begin(), masks.end(), [](const Mask& m) {
    return m.names.documents || m.names.segments;
  });
}

bool Shape::ranks_documents() const {
  return std::any_of(masks.begin(), masks.end(), [this](const Mask& m) {
    return m.names.documents && !m.names.segments &&
           (sinks || has_sink(m.expr));
  });
}

bool Shape::ranks_segments() const {
  return std::any_of(masks.begin(), masks.end(), [this](const Mask& m) {
    return m.names.segments && (sinks || has_sink(m.expr));
  });
}

bool Shape::names_prefix() const {
  return std::any_of(masks.begin(), masks.end(),
                     [](const Mask& m) { return has(m.expr, Atom::prefix); });
}

bool Shape::names_tree() const {
  return std::any_of(masks.begin(), masks.end(),
                     [](const Mask& m) { return has(m.expr, Atom::tree); });
}

bool Shape::names_same(int64_t name) const {
  return std::any_of(masks.begin(), masks.end(), [&](const Mask& m) {
    return has(m.expr, Atom::same) && (m.names.same >> name & 1) != 0;
  });
}

std::vector<Argument> arguments_of(const Shape& s) {
  std::vector<Argument> out;
  const auto integers = [&](bool needed, std::string name, Dims dims) {
    if (needed) {
      out.push_back({std::move(name), {Element::i32, std::move(dims)}});
    }
  };
  const bool listed = s.method == XlaMethod::worklist;
  integers(!s.numbered, "rows", {s.batch, kRowFacts});
  integers(s.numbered, "q_positions", {s.batch, s.q_len});
  integers(s.numbered, "k_numbers", {s.batch, s.kv_len});
  integers(s.numbered && s.names_prefix(), "k_in_prefix", {s.batch, s.kv_len});
  integers(s.window_bounds > 0, "bounds", {s.window_bounds});
  integers(s.numbered_masks, "mask_numbers", {s.plan_heads});
  integers(s.sinks, "first_keys", {1});
  integers(listed, "steps", {s.steps});
  integers(listed, "range", {s.batch * s.plan_heads + 1});
  integers(s.names_documents(), "q_documents", {s.batch, s.q_len});
  integers(s.names_documents(), "k_documents", {s.batch, s.kv_len});
  integers(s.names_segments(), "q_segments", {s.batch, s.q_len});
  integers(s.names_segments(), "k_segments", {s.batch, s.kv_len});
  integers(s.ranks_documents(), "k_document_ranks", {s.batch, s.kv_len});
  integers(s.ranks_segments(), "k_segment_ranks", {s.batch, s.kv_len});
  integers(s.names_tree(), "k_tree_ends", {s.batch, s.kv_len});
  for (int64_t i = 0; i < kSameNames; ++i) {
    const bool named = s.names_same(i);
    integers(named, "q_" + mask::same_fact(i), {s.batch, s.q_len});
    integers(named, "k_" + mask::same_fact(i), {s.batch, s.kv_len});
  }
  integers(s.picks_k > 0, "picks", {s.batch, s.pick_heads, s.q_len, s.picks_k});

  const auto array = [&](bool needed, std::string name, Element element,
                         Dims dims) {
    if (needed) out.push_back({std::move(name), {element, std::move(dims)}});
  };
  const Dims q_rows = {s.batch, s.heads, s.q_len};
  const Dims out_dims = {s.batch, s.heads, s.q_len, s.v_head_dim};
  array(true, "q", s.element, {s.batch, s.heads, s.q_len, s.head_dim});
  array(true, "k", s.element, {s.batch, s.kv_heads, s.kv_len, s.head_dim});
  array(!s.sinks, "v", s.element,
        {s.batch, s.kv_heads, s.kv_len, s.v_head_dim});
  array(s.sink_logits, "sink_logits", Element::f32, {s.heads});
  array(s.backward, "out", s.element, out_dims);
  array(s.backward, "dout", s.element, out_dims);
  array(s.backward, "lse", Element::f32, q_rows);
  array(s.backward && s.dlse, "dlse", Element::f32, q_rows);
  return out;
}

}  // namespace tessera::xla
