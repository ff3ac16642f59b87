// model/mesh.cc: rows are divided, parameters are not, gradients are added.
#include "model/mesh.h"

#include <algorithm>
#include <utility>

#include "base/fail.h"
#include "base/integers.h"
#include "base/text.h"

namespace tessera::model {
namespace {

using Axes = std::vector<std::string>;

// Those of the mesh, in its order: "data,seq".
std::string all_axes(const Mesh& mesh) {
  std::string out;
  for (const MeshAxis& axis : mesh.axes) {
    out += (out.empty() ? "" : ",") + axis.name;
  }
  return out;
}

Axes axes_of(const Mesh& mesh, const xla::Type& type, Lies lies) {
  Axes out(type.dims.size());
  if (lies == Lies::own) out.at(0) = all_axes(mesh);
  if (lies != Lies::divided) return out;
  if (mesh.has(kDataAxis)) out.at(0) = kDataAxis;
  if (mesh.has(kSeqAxis)) out.at(1) = kSeqAxis;
  return out;
}

Writer::Groups all_devices(int64_t devices) {
  Writer::Groups out(1);
  for (int64_t d = 0; d < devices; ++d) out[0].push_back(d);
  return out;
}

// Blocks of dimension 0, in their order.
Value added(Writer& w, const Value& blocks) {
  Value sum = w.part(blocks, 0, 0, 1);
  for (int64_t i = 1; i < blocks.dims()[0]; ++i) {
    sum = w.add(sum, w.part(blocks, 0, i, i + 1));
  }
  return sum;
}

int64_t elements(const Value& v) { return v.type.elements(); }

// Several arrays as one, in parts of one size for the devices.
Values sum_together(Writer& w, int64_t devices, std::span<const Value> terms) {
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
  const Writer::Groups groups = all_devices(devices);
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
  for (const MeshAxis& axis : mesh.axes) {
    const bool known = axis.name == kDataAxis || axis.name == kSeqAxis;
    const auto same = std::ranges::count(mesh.axes, axis.name, &MeshAxis::name);
    if (!known || same > 1) {
      return invalid("train",
                     "a mesh of a step takes the axes {} and {}, found {}",
                     kDataAxis, kSeqAxis, in_quotes(to_string(mesh)));
    }
    if (axis.size < 1 || axis.size > kMaxMeshDevices) {
      return invalid("train", "an axis must have 1 to {} devices, found {}",
                     kMaxMeshDevices, in_quotes(to_string(mesh)));
    }
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
  if (mesh.size(kSeqAxis) > 1 && has_kernels(o.spec)) {
    return invalid("train",
                   "a mesh of the spec {} takes the axis {} alone, found {}",
                   o.spec.name, kDataAxis, in_quotes(to_string(mesh)));
  }
  return {};
}

Portion portion_of(const Mesh& mesh, int64_t device) {
  Portion out;
  for (size_t i = mesh.axes.size(); i-- > 0;) {
    const MeshAxis& axis = mesh.axes[i];
    const int64_t at = device % axis.size;
    device /= axis.size;
    const bool data = axis.name == kDataAxis;
    (data ? out.row_part : out.token_part) = at;
    (data ? out.row_parts : out.token_parts) = axis.size;
  }
  return out;
}

Writer::Groups groups_along(const Mesh& mesh, std::string_view axis) {
  int64_t stride = 1;  // between neighbours along it
  for (size_t i = mesh.axes.size(); i-- > 0 && mesh.axes[i].name != axis;) {
    stride *= mesh.axes[i].size;
  }
  Writer::Groups out;
  for (int64_t d = 0; d < mesh.devices(); ++d) {
    if (d / stride % mesh.size(axis) != 0) continue;
    out.emplace_back();
    for (int64_t i = 0; i < mesh.size(axis); ++i) {
      out.back().push_back(d + i * stride);
    }
  }
  return out;
}

void share_rows(StepShape& s) {
  if (s.mesh.size(kSeqAxis) == 1) return;
  for (AttentionPlace& place : s.places) {
    place.sharers = groups_along(s.mesh, kSeqAxis);
  }
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
  const size_t whole = ends.arguments.size() - batch;
  const size_t own = whole + column_names(s.model).size();
  for (size_t i = 0; i < ends.arguments.size(); ++i) {
    const Lies lies = i < whole ? Lies::whole
                      : i < own ? Lies::divided
                                : Lies::own;
    spread.arguments.push_back(axes_of(s.mesh, ends.arguments[i].type, lies));
  }
  for (size_t i = 0; i < ends.results.size(); ++i) {
    Lies lies = Lies::whole;
    for (const auto& [result, how] : ends.placed) {
      if (result == i) lies = how;
    }
    spread.results.push_back(axes_of(s.mesh, ends.results[i].type, lies));
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

Values sum_over_devices(Writer& w, int64_t devices, const Values& terms,
                        int64_t most) {
  if (devices == 1) return terms;
  Values out;
  const std::span<const Value> all = terms;
  for (size_t begin = 0; begin < all.size();) {
    size_t end = begin + 1;
    int64_t taken = elements(all[begin]);
    while (end < all.size() && taken + elements(all[end]) <= most) {
      taken += elements(all[end++]);
    }
    const Values sums =
        sum_together(w, devices, all.subspan(begin, end - begin));
    out.insert(out.end(), sums.begin(), sums.end());
    begin = end;
  }
  return out;
}

}  // namespace tessera::model
