// audit/place.cc: checks Shardy shardings against their meshes.
#include "audit/place.h"

#include <algorithm>

#include "base/fail.h"
#include "base/text.h"

namespace tessera::audit {
namespace {

// The number of parts that an axis, or a part of it, splits into.
int64_t ways(const AuditMesh& mesh, const AxisUse& use) {
  if (use.size > 0) return use.size;
  for (const MeshAxis& a : mesh.axes) {
    if (a.name == use.name) return a.size;
  }
  return 1;
}

Result<void> check_use(const AuditMesh& mesh, const AxisUse& use,
                       const std::string& what, uint32_t line) {
  const auto axis =
      std::find_if(mesh.axes.begin(), mesh.axes.end(),
                   [&](const MeshAxis& a) { return a.name == use.name; });
  if (axis == mesh.axes.end()) {
    return invalid("audit",
                   "an axis must be of the mesh {}, found {} for {} on line {}",
                   on_a_line(text_of(mesh)), in_quotes(use.name), what, line);
  }
  if (use.size == 0) return {};
  const auto part = product(use.before, use.size);
  if (!part || axis->size % *part != 0) {
    return invalid("audit",
                   "a part of an axis must divide it, found ({}){} of {}={} "
                   "for {} on line {}",
                   use.before, use.size, in_quotes(use.name), axis->size, what,
                   line);
  }
  return {};
}

// Whether two uses overlap; disjoint parts of one axis do not.
bool overlap(const AuditMesh& mesh, const AxisUse& a, const AxisUse& b) {
  if (a.name != b.name) return false;
  const auto end = [&](const AxisUse& u) { return u.before * ways(mesh, u); };
  return std::max(a.before, b.before) < std::min(end(a), end(b)) ||
         a.size == 0 || b.size == 0;
}

}  // namespace

Result<const AuditMesh*> check_axes(const Meshes& meshes, const Sharding& s,
                                    const std::string& what) {
  const auto found = meshes.by_name.find(s.mesh);
  if (found == meshes.by_name.end()) {
    return invalid("audit",
                   "a sharding must name a mesh of the program, found {} for "
                   "{} on line {}",
                   in_quotes(s.mesh), what, s.line);
  }
  const AuditMesh& mesh = found->second;
  std::vector<const AxisUse*> used;
  const auto add = [&](const std::vector<AxisUse>& axes) -> Result<void> {
    for (const AxisUse& use : axes) {
      if (auto e = check_use(mesh, use, what, s.line); !e) return e;
      for (const AxisUse* other : used) {
        if (!overlap(mesh, use, *other)) continue;
        return invalid("audit",
                       "an axis must stand once in a sharding, found {} twice "
                       "for {} on line {}",
                       in_quotes(use.name), what, s.line);
      }
      used.push_back(&use);
    }
    return {};
  };
  for (const auto& axes : s.dims) {
    if (auto e = add(axes); !e) return e.error();
  }
  for (const auto* axes : {&s.replicated, &s.unreduced}) {
    if (auto e = add(*axes); !e) return e.error();
  }
  return &mesh;
}

Result<AuditArray> part_of(const Type& type, const Dims& splits,
                           std::string sharding, const std::string& what,
                           uint32_t line) {
  if (splits.size() != type.dims.size()) {
    return invalid("audit",
                   "a sharding must have a word for each dimension, found {} "
                   "for the {} of {} on line {}",
                   splits.size(), type.dims.size(), what, line);
  }
  Type part = type;
  for (size_t d = 0; d < splits.size(); ++d) {
    if (part.dims[d] % splits[d] != 0) {
      return invalid("audit",
                     "axes must divide what they split, found {} for dimension "
                     "{} of {}, which is {}, on line {}",
                     splits[d], d, what, part.dims[d], line);
    }
    part.dims[d] /= splits[d];
  }
  if (auto whole = bytes_of(type, line); !whole) return whole.error();
  auto bytes = bytes_of(part, line);
  if (!bytes) return bytes.error();
  AuditArray out;
  out.dtype = type.dtype;
  out.shape = type.dims;
  out.part = std::move(part.dims);
  out.sharding = std::move(sharding);
  out.part_bytes = *bytes;
  return out;
}

Result<AuditArray> place(const Meshes& meshes, const Sharding& s,
                         const Type& type, const std::string& what) {
  auto mesh = check_axes(meshes, s, what);
  if (!mesh) return mesh.error();
  if (s.open) {
    return invalid("audit",
                   "a dimension must not be left to the compiler, found '?' "
                   "for dimension {} of {} on line {}",
                   *s.open, what, s.line);
  }
  Dims splits;
  for (const auto& axes : s.dims) {
    int64_t split = 1;  // at most the mesh's devices: no axis repeats
    for (const AxisUse& use : axes) split *= ways(**mesh, use);
    splits.push_back(split);
  }
  return part_of(type, splits, text_of(s), what, s.line);
}

}  // namespace tessera::audit
