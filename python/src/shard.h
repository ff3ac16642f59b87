// shard.h: a batch spread over a mesh of devices.
#pragma once

#include <nanobind/nanobind.h>

namespace tessera::python {

void bind_shard(nanobind::module_& m);

}  // namespace tessera::python
