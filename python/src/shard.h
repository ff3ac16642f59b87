// shard.h: the Python class Shards, a batch divided over a mesh of devices.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "tessera/shard.h"

namespace tessera::python {

// The options of a call on this mesh. If `mesh` is empty, no option may be set.
ShardOptions shard_options(const ShardWords& words, const std::string& mesh);

void bind_shard(nanobind::module_& m);

}  // namespace tessera::python
