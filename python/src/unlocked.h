// unlocked.h: runs work of the library without the GIL.
#pragma once

#include <nanobind/nanobind.h>

#include <utility>

namespace tessera::python {

// `work` must touch no Python object.
template <class Work>
auto unlocked(Work&& work) {
  const nanobind::gil_scoped_release released;
  return std::forward<Work>(work)();
}

}  // namespace tessera::python
