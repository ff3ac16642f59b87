// shard/mesh.cc: the text of a mesh, and how even a split along an axis is.
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "base/fail.h"
#include "base/text.h"
#include "tessera/shard.h"

namespace tessera {
namespace {

Result<MeshAxis> parse_axis(std::string_view word) {
  const size_t equals = word.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    return invalid("mesh", "an axis must read name=size, found {}",
                   in_quotes(word));
  }
  const std::string_view name = word.substr(0, equals);
  if (std::ranges::find(kMeshAxes, name) == std::end(kMeshAxes)) {
    return invalid("mesh", "an axis must be one of {}, found {}",
                   fmt::join(kMeshAxes, ", "), in_quotes(name));
  }
  const std::string_view digits = word.substr(equals + 1);
  int64_t size = 0;
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), size);
  if (digits.empty() || error != std::errc{} ||
      end != digits.data() + digits.size() || size < 1 ||
      size > kMaxMeshDevices) {
    return invalid("mesh", "an axis must have 1 to {} devices, found {}",
                   kMaxMeshDevices, in_quotes(word));
  }
  return MeshAxis{std::string(name), size};
}

}  // namespace

int64_t Mesh::devices() const {
  int64_t n = 1;
  for (const MeshAxis& a : axes) n *= a.size;
  return n;
}

bool Mesh::has(std::string_view axis) const {
  return std::ranges::find(axes, axis, &MeshAxis::name) != axes.end();
}

int64_t Mesh::size(std::string_view axis) const {
  for (const MeshAxis& a : axes) {
    if (a.name == axis) return a.size;
  }
  return 1;
}

Result<Mesh> parse_mesh(std::string_view text) {
  Mesh mesh;
  int64_t devices = 1;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    auto axis = parse_axis(text.substr(at, end - at));
    if (!axis) return axis.error();
    for (const MeshAxis& a : mesh.axes) {
      if (a.name == axis->name) {
        return invalid("mesh", "an axis must stand once, found two for {}",
                       in_quotes(a.name));
      }
    }
    devices *= axis->size;
    if (devices > kMaxMeshDevices) {
      return over_limit("mesh", "a mesh may have {} devices, found more for {}",
                        kMaxMeshDevices, in_quotes(text));
    }
    mesh.axes.push_back(std::move(*axis));
    at = end + 1;
  }
  return mesh;
}

std::string to_string(const Mesh& mesh) {
  std::string out;
  for (const MeshAxis& a : mesh.axes) {
    out += fmt::format("{}{}={}", out.empty() ? "" : ",", a.name, a.size);
  }
  return out;
}

}  // namespace tessera
