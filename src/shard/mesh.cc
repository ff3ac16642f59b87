// shard/mesh.cc: the text of a mesh, and checks of axis names and roles.
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "base/fail.h"
#include "base/text.h"
#include "tessera/shard.h"

namespace tessera {
namespace {

bool is_role(std::string_view word) {
  return std::ranges::find(kMeshAxes, word) != std::end(kMeshAxes);
}

// A name must be an identifier, which programs may write without quotes, and
// not the name of a role.
Result<void> check_name(std::string_view name, std::string_view word) {
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  const bool reads =
      !name.empty() && name.size() <= kMaxAxisName && is_letter(name.front()) &&
      std::ranges::all_of(
          name, [&](char c) { return is_letter(c) || (c >= '0' && c <= '9'); });
  if (reads && !is_role(name)) return {};
  return invalid("mesh",
                 "an axis's own name must be of 1 to {} letters, digits and _ "
                 "and no role, found {}",
                 kMaxAxisName, in_quotes(word));
}

Result<MeshAxis> parse_axis(std::string_view word) {
  const size_t equals = word.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    return invalid("mesh", "an axis must read name=size, found {}",
                   in_quotes(word));
  }
  std::string_view name = word.substr(0, equals), role = name;
  if (const size_t colon = name.find(':'); colon != name.npos) {
    role = name.substr(colon + 1);
    name = name.substr(0, colon);
  }
  if (!is_role(role)) {
    return invalid("mesh", "an axis must be one of {}, found {}",
                   fmt::join(kMeshAxes, ", "), in_quotes(role));
  }
  if (name != role) {
    if (auto e = check_name(name, word); !e) return e.error();
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
  return MeshAxis{std::string(name), size,
                  name == role ? std::string() : std::string(role)};
}

const MeshAxis* of_role(const Mesh& mesh, std::string_view role) {
  const auto at = std::ranges::find(mesh.axes, role, &MeshAxis::does);
  return at == mesh.axes.end() ? nullptr : &*at;
}

}  // namespace

int64_t Mesh::devices() const {
  int64_t n = 1;
  for (const MeshAxis& a : axes) n *= a.size;
  return n;
}

const MeshAxis* Mesh::named(std::string_view name) const {
  const auto at = std::ranges::find(axes, name, &MeshAxis::name);
  return at == axes.end() ? nullptr : &*at;
}

bool Mesh::has(std::string_view role) const {
  return of_role(*this, role) != nullptr;
}

int64_t Mesh::size(std::string_view role) const {
  const MeshAxis* const axis = of_role(*this, role);
  return axis ? axis->size : 1;
}

std::string Mesh::name_of(std::string_view role) const {
  const MeshAxis* const axis = of_role(*this, role);
  return axis ? axis->name : "";
}

Result<Mesh> parse_mesh(std::string_view text) {
  Mesh mesh;
  int64_t devices = 1;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    auto axis = parse_axis(text.substr(at, end - at));
    if (!axis) return axis.error();
    for (const MeshAxis& a : mesh.axes) {
      if (a.name == axis->name || a.does() == axis->does()) {
        return invalid("mesh", "an axis must stand once, found two for {}",
                       in_quotes(a.name == axis->name ? a.name : a.does()));
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
    out += fmt::format("{}{}{}{}={}", out.empty() ? "" : ",", a.name,
                       a.role.empty() ? "" : ":", a.role, a.size);
  }
  return out;
}

}  // namespace tessera
