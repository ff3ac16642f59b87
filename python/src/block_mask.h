// block_mask.h: masks that are whole blocks, and their worklists.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>

#include "tessera/layouts.h"
#include "worklist.h"

namespace tessera::python {

namespace nb = nanobind;

// A view of [.., rows, columns] of bool or uint8 in C order; where `columns`
// are given, of uint8 with a bit a block. All dimensions before are lists.
BlockMask read_block_mask(const char* name, nb::handle object,
                          std::optional<int64_t> columns);

// The lists of a `BlockLists`; another owner is refused.
PyWorklist worklist_of_blocks(nb::object owner, bool transposed);

void bind_block_mask(nb::module_& m);

}  // namespace tessera::python
