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

Axes axes_of(const xla::Type& type, bool divided) {
  Axes out(type.dims.size());
  if (divided) out.at(0) = kDataAxis;
  return out;
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
  const Value mine = w.exchange(parts, devices);
  Value sum = w.part(mine, 0, 0, 1);
  for (int64_t d = 1; d < devices; ++d) {
    sum = w.add(sum, w.part(mine, 0, d, d + 1));
  }
  const Value whole = w.gather(w.reshape(sum, {part}), devices);
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
  if (o.mesh.axes.empty()) return {};
  for (const MeshAxis& axis : o.mesh.axes) {
    if (axis.name == kDataAxis && o.mesh.axes.size() == 1) continue;
    return invalid("train",
                   "a mesh of a step takes the axis {} alone, found {}",
                   kDataAxis, in_quotes(to_string(o.mesh)));
  }
  const int64_t devices = o.mesh.axes.front().size;
  if (devices < 1 || devices > kMaxMeshDevices || o.rows % devices != 0) {
    return invalid("train",
                   "rows of a step must divide among the devices of its mesh, "
                   "found {} for {}",
                   o.rows, devices);
  }
  return {};
}

Facts facts_of(const Facts& all, int64_t device, int64_t devices) {
  Facts out = all;
  for (auto* values : {&out.doc_ids, &out.valid_token_counts}) {
    if (!*values) continue;
    const size_t each = (*values)->size() / static_cast<size_t>(devices);
    *values = (*values)->subspan(static_cast<size_t>(device) * each, each);
  }
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
  const size_t whole = ends.arguments.size() - batch_arguments(s).size();
  for (size_t i = 0; i < ends.arguments.size(); ++i) {
    spread.arguments.push_back(axes_of(ends.arguments[i].type, i >= whole));
  }
  for (size_t i = 0; i < ends.results.size(); ++i) {
    spread.results.push_back(
        axes_of(ends.results[i].type, std::ranges::count(ends.divided, i) > 0));
  }
  return w.module(name, ends.results, spread, reuse);
}

Result<std::string> program_specs(const StepShape& s, std::string_view text) {
  if (s.devices() == 1) return std::string();
  auto audit = audit_program(text);
  if (!audit) return audit.error();
  return std::move(audit->fingerprint);
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
