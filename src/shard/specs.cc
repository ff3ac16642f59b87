// shard/specs.cc: checks and digests the layout of arrays on a mesh.
#include <set>

#include "base/digest.h"
#include "base/dtype_word.h"
#include "base/fail.h"
#include "base/text.h"
#include "shard/fingerprint.h"
#include "tessera/shard.h"

namespace tessera {
namespace {

Result<void> check_spec(const Mesh& mesh, const ArraySpec& spec) {
  if (spec.axes.size() != spec.shape.size()) {
    return invalid("shard",
                   "an array must have a spec for each dimension, found {} for "
                   "the {} of {}",
                   spec.axes.size(), spec.shape.size(), in_quotes(spec.name));
  }
  std::set<std::string_view> used;
  for (size_t d = 0; d < spec.axes.size(); ++d) {
    const std::string& axis = spec.axes[d];
    if (spec.shape[d] < 1) {
      return invalid("shard",
                     "a dimension must be at least 1, found {} for dimension "
                     "{} of {}",
                     spec.shape[d], d, in_quotes(spec.name));
    }
    if (axis.empty()) continue;
    const MeshAxis* const of_mesh = mesh.named(axis);
    if (!of_mesh) {
      return invalid("shard", "an axis must be of the mesh {}, found {} for {}",
                     to_string(mesh), in_quotes(axis), in_quotes(spec.name));
    }
    if (!used.insert(axis).second) {
      return invalid("shard",
                     "an axis must split one dimension of an array, found {} "
                     "twice for {}",
                     in_quotes(axis), in_quotes(spec.name));
    }
    if (spec.shape[d] % of_mesh->size != 0) {
      return invalid("shard",
                     "an axis must divide what it splits, found {}={} for "
                     "dimension {} of {}, which is {}",
                     axis, of_mesh->size, d, in_quotes(spec.name),
                     spec.shape[d]);
    }
  }
  return {};
}

}  // namespace

Result<void> check_specs(const Mesh& mesh,
                         const std::vector<ArraySpec>& specs) {
  std::set<std::string_view> names;
  for (const ArraySpec& spec : specs) {
    if (spec.name.empty() || !names.insert(spec.name).second) {
      return invalid("shard",
                     "an array must have a name of its own, found {} again",
                     in_quotes(spec.name));
    }
    if (auto e = check_spec(mesh, spec); !e) return e;
  }
  return {};
}

namespace shard {

PlacedArray placed(const ArraySpec& spec) {
  std::string sharding = "[";
  for (size_t d = 0; d < spec.axes.size(); ++d) {
    const std::string& axis = spec.axes[d];
    if (d > 0) sharding += ", ";
    sharding += axis.empty() ? "{}" : fmt::format("{{\"{}\"}}", axis);
  }
  return {spec.name, dtype_word(spec.dtype), spec.shape, sharding + "]"};
}

std::string fingerprint_of(const std::string& mesh,
                           std::span<const PlacedArray> arrays) {
  Digest digest;
  digest.add_text(mesh);
  for (const PlacedArray& a : arrays) {
    digest.add_text(a.name);
    digest.add_text(a.dtype);
    digest.add(static_cast<int64_t>(a.shape.size()));
    for (const int64_t n : a.shape) digest.add(n);
    digest.add_text(a.sharding);
  }
  return digest.hex();
}

}  // namespace shard

std::string spec_fingerprint(const Mesh& mesh,
                             const std::vector<ArraySpec>& specs) {
  std::vector<shard::PlacedArray> arrays;
  arrays.reserve(specs.size());
  for (const ArraySpec& spec : specs) arrays.push_back(shard::placed(spec));
  Mesh as_written = mesh;
  for (MeshAxis& a : as_written.axes) a.role.clear();
  return shard::fingerprint_of(to_string(as_written), arrays);
}

}  // namespace tessera
