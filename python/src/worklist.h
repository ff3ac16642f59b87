// worklist.h: the Python class Worklist: lists of a batch or of a block mask.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "tessera/plan.h"

namespace tessera::python {

namespace nb = nanobind;

// The columns and the classes of a worklist's entries, as separate arrays.
struct Columns {
  std::vector<int32_t> column;
  std::vector<uint8_t> tile_class;
};

// The lists of one direction. `owner` is the Python object that owns them.
struct PyWorklist {
  nb::object owner;
  const Worklist* list = nullptr;
  std::optional<Columns>* kept = nullptr;
  bool transposed = false;

  const Columns& columns() const;
};

// `owner` is a batch.
PyWorklist worklist_of(nb::object owner, bool transposed);

void bind_worklist(nb::module_& m);

}  // namespace tessera::python
