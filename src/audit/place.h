// audit/place.h: checks that a sharding fits its mesh and its array, and finds
// the part that a device has.
#pragma once

#include <map>
#include <string>

#include "audit/arrays.h"

namespace tessera::audit {

struct Meshes {
  std::map<std::string, AuditMesh, std::less<>> by_name;  // keys include the @
  int64_t partitions = 1;
};

// Checks that the mesh exists, has each axis and that each is used once.
Result<const AuditMesh*> check_axes(const Meshes& meshes, const Sharding& s,
                                    const std::string& what);

// `what` is the array's name in errors: "parameter %q".
Result<AuditArray> place(const Meshes& meshes, const Sharding& s,
                         const Type& type, const std::string& what);
// place() for the old form: the text of an mhlo.sharding.
Result<AuditArray> place_tiled(const Meshes& meshes, std::string_view text,
                               const Type& type, const std::string& what,
                               uint32_t line, bool may_be_manual);
// The array whose dimensions are split by `splits`.
Result<AuditArray> part_of(const Type& type, const Dims& splits,
                           std::string sharding, const std::string& what,
                           uint32_t line);

}  // namespace tessera::audit
