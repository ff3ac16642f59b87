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
#include "unlocked.h"

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

struct NamedArray {
  std::string name;
  std::vector<int32_t> values;
  std::vector<size_t> shape;
};

// Makes arrays of [batch] or [batch, tokens], row by row. Works without the
// GIL.
class Rows {
 public:
  explicit Rows(const mask::Bound& bound) : bound_(bound) {}

  template <class Value>
  void scalars(const char* name, Value value) {
    std::vector<int32_t> out;
    out.reserve(bound_.rows.size());
    for (const mask::BoundRow& row : bound_.rows) {
      out.push_back(static_cast<int32_t>(value(row)));
    }
    made_.push_back({name, std::move(out), {bound_.rows.size()}});
  }

  // [batch, length], with of(row, token) at each token.
  template <class Of>
  void tokens(std::string name, int64_t length, Of of) {
    std::vector<int32_t> out;
    const auto n = static_cast<size_t>(length);
    out.reserve(bound_.rows.size() * n);
    for (size_t b = 0; b < bound_.rows.size(); ++b) {
      for (size_t i = 0; i < n; ++i) out.push_back(of(b, i));
    }
    made_.push_back({std::move(name), std::move(out), {bound_.rows.size(), n}});
  }

  // keys(row, key) at each query's position; `none` if it is outside the keys.
  template <class Keys>
  void at_queries(std::string name, int32_t none, Keys keys) {
    tokens(std::move(name), bound_.q_len, [&](size_t b, size_t q) {
      const int64_t at = static_cast<int64_t>(q) + bound_.rows[b].q_offset;
      const bool inside = at >= 0 && at < bound_.kv_len;
      return inside ? keys(b, static_cast<size_t>(at)) : none;
    });
  }

  std::vector<NamedArray> take() { return std::move(made_); }

 private:
  const mask::Bound& bound_;
  std::vector<NamedArray> made_;
};

void add_ids(const mask::Bound& bound, Rows& rows) {
  const auto key_id = [&](size_t b, size_t k) { return bound.rows[b].ids[k]; };
  rows.tokens("kv_ids", bound.kv_len, key_id);
  if (bound.rows[0].q_ids == nullptr) {
    rows.at_queries("q_ids", -1, key_id);
    return;
  }
  rows.tokens("q_ids", bound.q_len,
              [&](size_t b, size_t q) { return bound.rows[b].q_ids[q]; });
}

// Adds the segment number of each token, and for sinks the rank of each key
// within its segment or document.
void add_ranks(const mask::Bound& bound, const Names& named, bool sinks,
               Rows& rows) {
  std::vector<mask::KeyArrays> keys;
  keys.reserve(bound.rows.size());
  for (const mask::BoundRow& row : bound.rows) {
    keys.push_back(mask::key_arrays(row.ids, bound.kv_len));
  }
  if (named.segments) {
    const auto segment = [&](size_t b, size_t k) { return keys[b].segment[k]; };
    rows.tokens("kv_segments", bound.kv_len, segment);
    rows.at_queries("q_segments", -1, segment);
  }
  if (sinks && named.segments) {
    rows.tokens("segment_ranks", bound.kv_len,
                [&](size_t b, size_t k) { return keys[b].segment_rank[k]; });
  }
  if (sinks && named.documents) {
    rows.tokens("document_ranks", bound.kv_len,
                [&](size_t b, size_t k) { return keys[b].document_rank[k]; });
  }
}

// The arrays that atoms read.
std::vector<NamedArray> arrays_of(const mask::Bound& bound, const Facts& facts,
                                  const Names& named, bool sinks) {
  Rows rows(bound);
  rows.scalars("q_offset", [](const mask::BoundRow& r) { return r.q_offset; });
  if (facts.valid_token_counts || facts.valid_slot_counts) {
    rows.scalars("valid", [](const mask::BoundRow& r) { return r.valid; });
    rows.scalars("q_end", [](const mask::BoundRow& r) { return r.q_end; });
  }
  if (named.prefix) {
    rows.scalars("prefix", [](const mask::BoundRow& r) { return r.prefix; });
  }
  if (named.documents || named.segments) add_ids(bound, rows);
  if (named.segments || (sinks && named.documents)) {
    add_ranks(bound, named, sinks, rows);
  }
  if (named.tree) {
    rows.tokens("tree_ends", bound.kv_len, [&](size_t b, size_t k) {
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
    rows.at_queries("q_" + name, -2, [&](size_t b, size_t k) {
      return id(b, k) < 0 ? -2 : id(b, k);
    });
    rows.tokens("kv_" + name, bound.kv_len,
                [&](size_t b, size_t k) { return std::max(id(b, k), -1); });
  }
  return rows.take();
}

nb::dict mask_parts(nb::handle self) {
  const Batch& batch = batch_of(self);
  const mask::Bound bound = take(
      unlocked([&] { return mask::bind(batch.request(), batch.facts()); }));
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
  auto arrays =
      unlocked([&] { return arrays_of(bound, batch.facts(), named, sinks); });
  for (NamedArray& one : arrays) {
    out[one.name.c_str()] =
        own_array(std::move(one.values), std::move(one.shape));
  }
  if (bound.picks != nullptr) {
    out["picks"] = self.attr("facts")["picks"].attr("copy")();
  }
  return out;
}

}  // namespace

void bind_mask_parts(nb::module_& m) { m.def("_mask_parts", &mask_parts); }

}  // namespace tessera::python
