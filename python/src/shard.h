// shard.h: a batch spread over a mesh of devices.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "tessera/shard.h"

namespace tessera::python {

// Of a call on this mesh. Without one the words must be those of no choice.
ShardOptions shard_options(const ShardWords& words, const std::string& mesh);

void bind_shard(nanobind::module_& m);

}  // namespace tessera::python
