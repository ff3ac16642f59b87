// worklist.h: the lists of a batch, or of a block mask, as Python sees them.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "tessera/plan.h"

namespace tessera::python {

namespace nb = nanobind;

// Of a worklist's entries, column and class apart.
struct Columns {
  std::vector<int32_t> column;
  std::vector<uint8_t> tile_class;
};

// The lists of one direction; `owner` is the Python object that has them.
struct PyWorklist {
  nb::object owner;
  const Worklist* list = nullptr;
  std::optional<Columns>* kept = nullptr;
  bool transposed = false;

  const Columns& columns() const;
};

// Of a batch.
PyWorklist worklist_of(nb::object owner, bool transposed);

void bind_worklist(nb::module_& m);

}  // namespace tessera::python
