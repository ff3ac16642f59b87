// mask_parts.cc: the masks of a batch as trees of atoms, and the arrays that
// the atoms read, from which a mask_mod(batch, head, query, key) is built.
#include <nanobind/stl/string.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "arrays.h"
#include "batch.h"
#include "failure.h"
#include "frameworks.h"
#include "mask/bind.h"
#include "mask/canonical.h"
#include "mask/key_arrays.h"

namespace tessera::python {
namespace {

// An expression as nested tuples: ("and", child, ...), ("window", left, right).
nb::object tree_of(const Expr& e) {
  nb::list out;
  switch (e.atom) {
    case Atom::op_not:
      out.append("not");
      break;
    case Atom::op_and:
      out.append("and");
      break;
    case Atom::op_or:
      out.append("or");
      break;
    default: {
      const mask::AtomSpec& spec = mask::spec_of(e.atom);
      out.append(nb::str(spec.name.data(), spec.name.size()));
      if (!spec.arguments.empty()) out.append(e.a);
      if (spec.arguments.size() > 1) out.append(e.b);
    }
  }
  for (const Expr& child : e.children) out.append(tree_of(child));
  return nb::tuple(out);
}

bool names(const Expr& e, Atom atom) {
  return e.atom == atom ||
         std::any_of(e.children.begin(), e.children.end(),
                     [&](const Expr& c) { return names(c, atom); });
}

// Makes arrays of [batch] or [batch, tokens], row by row.
class Rows {
 public:
  explicit Rows(const mask::Bound& bound) : bound_(bound) {}

  template <class Value>
  nb::object scalars(Value value) const {
    std::vector<int32_t> out;
    out.reserve(bound_.rows.size());
    for (const mask::BoundRow& row : bound_.rows) {
      out.push_back(static_cast<int32_t>(value(row)));
    }
    return own_array(std::move(out), {bound_.rows.size()});
  }

  // [batch, length], with of(row, token) at each token.
  template <class Of>
  nb::object tokens(int64_t length, Of of) const {
    std::vector<int32_t> out;
    const auto n = static_cast<size_t>(length);
    out.reserve(bound_.rows.size() * n);
    for (size_t b = 0; b < bound_.rows.size(); ++b) {
      for (size_t i = 0; i < n; ++i) out.push_back(of(b, i));
    }
    return own_array(std::move(out), {bound_.rows.size(), n});
  }

  // keys(row, key) at each query's position; `none` if it is outside the keys.
  template <class Keys>
  nb::object at_queries(int32_t none, Keys keys) const {
    return tokens(bound_.q_len, [&](size_t b, size_t q) {
      const int64_t at = static_cast<int64_t>(q) + bound_.rows[b].q_offset;
      const bool inside = at >= 0 && at < bound_.kv_len;
      return inside ? keys(b, static_cast<size_t>(at)) : none;
    });
  }

 private:
  const mask::Bound& bound_;
};

void add_ids(const mask::Bound& bound, nb::dict& out) {
  const Rows rows(bound);
  const auto key_id = [&](size_t b, size_t k) { return bound.rows[b].ids[k]; };
  out["kv_ids"] = rows.tokens(bound.kv_len, key_id);
  out["q_ids"] = bound.rows[0].q_ids != nullptr
                     ? rows.tokens(bound.q_len,
                                   [&](size_t b, size_t q) {
                                     return bound.rows[b].q_ids[q];
                                   })
                     : rows.at_queries(-1, key_id);
}

// Adds the segment number of each token, and for sinks the rank of each key
// within its segment or document.
void add_ranks(const mask::Bound& bound, const Names& named, bool sinks,
               nb::dict& out) {
  std::vector<mask::KeyArrays> keys;
  for (const mask::BoundRow& row : bound.rows) {
    keys.push_back(mask::key_arrays(row.ids, bound.kv_len));
  }
  const Rows rows(bound);
  if (named.segments) {
    const auto segment = [&](size_t b, size_t k) { return keys[b].segment[k]; };
    out["kv_segments"] = rows.tokens(bound.kv_len, segment);
    out["q_segments"] = rows.at_queries(-1, segment);
  }
  if (sinks && named.segments) {
    out["segment_ranks"] = rows.tokens(bound.kv_len, [&](size_t b, size_t k) {
      return keys[b].segment_rank[k];
    });
  }
  if (sinks && named.documents) {
    out["document_ranks"] = rows.tokens(bound.kv_len, [&](size_t b, size_t k) {
      return keys[b].document_rank[k];
    });
  }
}

nb::dict mask_parts(nb::handle self) {
  const Batch& batch = batch_of(self);
  const mask::Bound bound = take(mask::bind(batch.request(), batch.facts()));
  const Rows rows(bound);
  nb::dict out;
  nb::list masks;
  Names named;
  bool sinks = false;
  for (const Mask* one : bound.masks) {
    const Names& n = one->names;
    const char* const same = n.segments    ? "segments"
                             : n.documents ? "documents"
                                           : "";
    masks.append(nb::make_tuple(tree_of(one->expr), same));
    named.documents |= n.documents;
    named.segments |= n.segments;
    named.prefix |= n.prefix;
    named.tree |= n.tree;
    named.same |= n.same;
    sinks |= names(one->expr, Atom::sink);
  }
  out["masks"] = masks;
  out["q_offset"] =
      rows.scalars([](const mask::BoundRow& r) { return r.q_offset; });
  if (batch.facts().valid_token_counts || batch.facts().valid_slot_counts) {
    out["valid"] =
        rows.scalars([](const mask::BoundRow& r) { return r.valid; });
    out["q_end"] =
        rows.scalars([](const mask::BoundRow& r) { return r.q_end; });
  }
  if (named.prefix) {
    out["prefix"] =
        rows.scalars([](const mask::BoundRow& r) { return r.prefix; });
  }
  if (named.documents || named.segments) add_ids(bound, out);
  if (named.segments || (sinks && named.documents)) {
    add_ranks(bound, named, sinks, out);
  }
  if (named.tree) {
    out["tree_ends"] = rows.tokens(bound.kv_len, [&](size_t b, size_t k) {
      return mask::end_of_subtree(bound.trees[b], static_cast<int64_t>(k));
    });
  }
  for (size_t i = 0; i < static_cast<size_t>(kSameNames); ++i) {
    if ((named.same >> i & 1) == 0) continue;
    // Without a group a query is -2 and a key is -1, so that they differ.
    const auto id = [&](size_t b, size_t k) {
      return bound.rows[b].same[i][k];
    };
    const std::string name = mask::same_fact(static_cast<int64_t>(i));
    out[("q_" + name).c_str()] = rows.at_queries(
        -2, [&](size_t b, size_t k) { return id(b, k) < 0 ? -2 : id(b, k); });
    out[("kv_" + name).c_str()] =
        rows.tokens(bound.kv_len,
                    [&](size_t b, size_t k) { return std::max(id(b, k), -1); });
  }
  if (bound.picks != nullptr) {
    out["picks"] = self.attr("facts")["picks"].attr("copy")();
  }
  return out;
}

}  // namespace

void bind_mask_parts(nb::module_& m) { m.def("_mask_parts", &mask_parts); }

}  // namespace tessera::python
