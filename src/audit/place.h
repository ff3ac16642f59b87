// audit/place.h: whether a sharding fits its mesh and its array, and the part
// of it that a device has.
#pragma once

#include <map>
#include <string>

#include "audit/arrays.h"

namespace tessera::audit {

struct Meshes {
  std::map<std::string, AuditMesh, std::less<>> by_name;  // with their @
  int64_t partitions = 1;
};

// That its mesh is there and each axis is of it and used once.
Result<const AuditMesh*> check_axes(const Meshes& meshes, const Sharding& s,
                                    const std::string& what);

// `what` is its name in errors: "parameter %q".
Result<AuditArray> place(const Meshes& meshes, const Sharding& s,
                         const Type& type, const std::string& what);
// The same of the old form: the text of an mhlo.sharding.
Result<AuditArray> place_tiled(const Meshes& meshes, std::string_view text,
                               const Type& type, const std::string& what,
                               uint32_t line, bool may_be_manual);
// Each dimension split by so many.
Result<AuditArray> part_of(const Type& type, const Dims& splits,
                           std::string sharding, const std::string& what,
                           uint32_t line);

}  // namespace tessera::audit
