// model/mesh.cc: divides rows, tokens and heads; adds up over devices.
#include "model/mesh.h"

#include <algorithm>
#include <utility>

#include "base/fail.h"
#include "base/integers.h"
#include "base/text.h"
#include "shard/check.h"

namespace tessera::model {
namespace {

// The names of the mesh's axes, in its order: "data,seq".
std::string all_axes(const Mesh& mesh) {
  std::string out;
  for (const MeshAxis& axis : mesh.axes) {
    out += (out.empty() ? "" : ",") + axis.name;
  }
  return out;
}

// The difference of the numbers of neighbours along the axis; 0 if the mesh
// does not have the axis.
int64_t stride_of(const Mesh& mesh, std::string_view axis) {
  if (!mesh.has(axis)) return 0;
  int64_t out = 1;
  for (size_t i = mesh.axes.size(); mesh.axes[--i].name != axis;) {
    out *= mesh.axes[i].size;
  }
  return out;
}

// The device's index along the axis.
int64_t place_along(const Mesh& mesh, std::string_view axis, int64_t device) {
  const int64_t stride = stride_of(mesh, axis);
  return stride == 0 ? 0 : device / stride % mesh.size(axis);
}

// Adds the blocks along dimension 0, in their order.
Value added(Writer& w, const Value& blocks) {
  Value sum = w.part(blocks, 0, 0, 1);
  for (int64_t i = 1; i < blocks.dims()[0]; ++i) {
    sum = w.add(sum, w.part(blocks, 0, i, i + 1));
  }
  return sum;
}

int64_t elements(const Value& v) { return v.type.elements(); }

// Sums several arrays as one flat array, which is padded and cut into one part
// per device of a group.
Values sum_together(Writer& w, const Writer::Groups& groups,
                    std::span<const Value> terms) {
  const auto devices = static_cast<int64_t>(groups.front().size());
  Values flat;
  int64_t all = 0;
  for (const Value& v : terms) {
    flat.push_back(w.reshape(v, {elements(v)}));
    all += elements(v);
  }
  const int64_t part = ceil_div(all, devices);
  const int64_t missing = part * devices - all;
  if (missing > 0) {
    flat.push_back(w.real(0, {missing}, terms.front().type.element));
  }
  const Value parts = w.reshape(w.join(flat, 0), {devices, part});
  const Value sum = added(w, w.exchange(parts, 0, groups));
  const Value whole = w.gather(w.reshape(sum, {part}), 0, groups);
  Values out;
  int64_t at = 0;
  for (const Value& v : terms) {
    out.push_back(w.reshape(w.part(whole, 0, at, at + elements(v)), v.dims()));
    at += elements(v);
  }
  return out;
}

}  // namespace

Result<void> check_mesh(const TrainOptions& o) {
  const Mesh& mesh = o.mesh;
  if (mesh.axes.empty()) return {};
  if (auto e = shard::check_mesh(mesh); !e) return e;
  // Parameters and programs use the plain names, so no axis may be renamed.
  const bool renamed = std::ranges::any_of(
      mesh.axes, [](const MeshAxis& a) { return !a.role.empty(); });
  if (mesh.has("copy") || renamed) {
    return invalid("train",
                   "a mesh of a step takes the axes {}, {} and {}, found {}",
                   kDataAxis, kHeadAxis, kSeqAxis, in_quotes(to_string(mesh)));
  }
  if (o.rows % mesh.size(kDataAxis) != 0) {
    return invalid("train",
                   "rows of a step must divide along the axis {}, found {} for "
                   "{}",
                   kDataAxis, o.rows, in_quotes(to_string(mesh)));
  }
  if (o.tokens % mesh.size(kSeqAxis) != 0) {
    return invalid("train",
                   "tokens of a row must divide along the axis {}, found {} "
                   "for {}",
                   kSeqAxis, o.tokens, in_quotes(to_string(mesh)));
  }
  for (const auto& [name, size] : {std::pair("kv_heads", o.model.kv_heads),
                                   {"mlp_width", o.model.mlp_width}}) {
    if (size % mesh.size(kHeadAxis) == 0) continue;
    return invalid("train", "{} must divide along the axis {}, found {} for {}",
                   name, kHeadAxis, size, in_quotes(to_string(mesh)));
  }
  return {};
}

Axes axes_of(const Mesh& mesh, const xla::Type& type, Lies lies) {
  Axes out(type.dims.size());
  if (lies == Lies::own) {
    out.at(0) = all_axes(mesh);
    return out;
  }
  if (mesh.has(kDataAxis)) out.at(0) = kDataAxis;
  if (mesh.has(kSeqAxis)) out.at(1) = kSeqAxis;
  return out;
}

Portion portion_of(const Mesh& mesh, int64_t device) {
  const auto at = [&](std::string_view axis) {
    return place_along(mesh, axis, device);
  };
  return {at(kDataAxis),       mesh.size(kDataAxis), at(kSeqAxis),
          mesh.size(kSeqAxis), at(kHeadAxis),        mesh.size(kHeadAxis)};
}

int64_t first_of_heads(const Mesh& mesh, int64_t device) {
  return device -
         place_along(mesh, kHeadAxis, device) * stride_of(mesh, kHeadAxis);
}

Writer::Groups groups_along(const Mesh& mesh,
                            const std::vector<std::string_view>& axes) {
  std::map<int64_t, std::vector<int64_t>> by_first;
  for (int64_t d = 0; d < mesh.devices(); ++d) {
    int64_t first = d;
    for (const std::string_view axis : axes) {
      first -= place_along(mesh, axis, d) * stride_of(mesh, axis);
    }
    by_first[first].push_back(d);
  }
  Writer::Groups out;
  for (auto& [first, group] : by_first) out.push_back(std::move(group));
  return out;
}

void share_rows(StepShape& s) {
  if (s.mesh.size(kSeqAxis) == 1) return;
  for (AttentionPlace& place : s.places) {
    place.sharers = groups_along(s.mesh, {kSeqAxis});
  }
}

ModelConfig own_model(const ModelConfig& model, const Mesh& mesh) {
  ModelConfig out = model;
  for (int64_t* each : {&out.heads, &out.kv_heads, &out.mlp_width}) {
    *each /= mesh.size(kHeadAxis);
  }
  return out;
}

Writer::Groups partners_of(const Mesh& mesh) {
  if (mesh.size(kHeadAxis) == 1) return {};
  return groups_along(mesh, {kHeadAxis});
}

std::vector<int32_t> part_of(const std::vector<int32_t>& all, int64_t rows,
                             const Portion& p) {
  const auto tokens = static_cast<int64_t>(all.size()) / rows;
  const int64_t each = rows / p.row_parts, some = tokens / p.token_parts;
  std::vector<int32_t> out;
  out.reserve(static_cast<size_t>(each * some));
  for (int64_t r = p.row_part * each; r < (p.row_part + 1) * each; ++r) {
    const auto from = all.begin() + r * tokens + p.token_part * some;
    out.insert(out.end(), from, from + some);
  }
  return out;
}

void put_part(const std::vector<float>& part, int64_t rows, const Portion& p,
              std::vector<float>& all) {
  const int64_t each = rows / p.row_parts;
  const auto row = static_cast<int64_t>(all.size()) / rows;
  const int64_t some = row / p.token_parts;
  for (int64_t r = 0; r < each; ++r) {
    std::copy_n(
        part.begin() + r * some, some,
        all.begin() + (p.row_part * each + r) * row + p.token_part * some);
  }
}

Facts facts_of(const Facts& all, const Portion& p, QueryFacts& kept) {
  Facts out = all;
  for (auto* values : {&out.doc_ids, &out.valid_token_counts}) {
    if (!*values) continue;
    const size_t each = (*values)->size() / static_cast<size_t>(p.row_parts);
    *values = (*values)->subspan(static_cast<size_t>(p.row_part) * each, each);
  }
  if (p.token_parts == 1) return out;
  const auto rows = static_cast<int64_t>(out.valid_token_counts->size());
  const std::vector<int32_t> ids(out.doc_ids->begin(), out.doc_ids->end());
  kept.ids = part_of(ids, rows, {0, 1, p.token_part, p.token_parts});
  const auto tokens = static_cast<int64_t>(kept.ids.size()) / rows;
  kept.offsets.assign(static_cast<size_t>(rows),
                      static_cast<int32_t>(p.token_part * tokens));
  out.q_doc_ids = kept.ids;
  out.q_offsets = kept.offsets;
  return out;
}

std::string write_module(const Writer& w, std::string_view name,
                         const StepShape& s, const ProgramEnds& ends,
                         const Writer::Reuse& reuse) {
  if (s.devices() == 1) return w.module(name, ends.results, reuse);
  Writer::Spread spread;
  for (const MeshAxis& axis : s.mesh.axes) {
    spread.sizes.emplace_back(axis.name, axis.size);
  }
  const size_t batch = batch_arguments(s).size();
  const size_t state = ends.arguments.size() - batch;
  const size_t own = state + column_names(s.model).size();
  const auto placed = [](const ProgramEnds::Placed& all, size_t i,
                         const xla::Type& type) {
    const auto at = all.find(i);
    return at == all.end() ? Axes(type.dims.size()) : at->second;
  };
  for (size_t i = 0; i < ends.arguments.size(); ++i) {
    const xla::Type& type = ends.arguments[i].type;
    spread.arguments.push_back(
        i < state ? placed(ends.arguments_placed, i, type)
                  : axes_of(s.mesh, type, i < own ? Lies::divided : Lies::own));
  }
  for (size_t i = 0; i < ends.results.size(); ++i) {
    spread.results.push_back(
        placed(ends.results_placed, i, ends.results[i].type));
  }
  return w.module(name, ends.results, spread, reuse);
}

Result<std::string> program_specs(const StepShape& s, std::string_view text) {
  if (s.devices() == 1) return std::string();
  auto audit = audit_program(text);
  if (!audit) return audit.error();
  return std::move(audit->fingerprint);
}

Value sum_parts(Writer& w, const Value& all, int64_t along,
                const Writer::Groups& groups) {
  Dims part = all.dims();
  const auto n = static_cast<int64_t>(groups.front().size());
  part[static_cast<size_t>(along)] /= n;
  Dims blocks = part;
  blocks.insert(blocks.begin(), n);
  const Value sent = w.exchange(all, along, groups);
  return w.reshape(added(w, w.reshape(sent, blocks)), part);
}

Values sum_over_devices(Writer& w, const Writer::Groups& groups,
                        const Values& terms, int64_t most) {
  if (groups.empty() || groups.front().size() == 1) return terms;
  Values out;
  const std::span<const Value> all = terms;
  for (size_t begin = 0; begin < all.size();) {
    size_t end = begin + 1;
    int64_t taken = elements(all[begin]);
    while (end < all.size() && taken + elements(all[end]) <= most) {
      taken += elements(all[end++]);
    }
    const Values sums =
        sum_together(w, groups, all.subspan(begin, end - begin));
    append(out, sums);
    begin = end;
  }
  return out;
}

}  // namespace tessera::model
