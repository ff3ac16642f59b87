// fit/mesh_order.h: places the arrays of lane xla's program on a mesh on a
// heap, in the order of the compiler's schedule as far as it is known.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "fit/heap.h"
#include "fit/mesh_scratch.h"

namespace tessera::fit {

enum class Kind : uint8_t { values, keys, rows };
using Kinds = std::array<Kind, 3>;
inline constexpr Kinds kKeysFirst = {Kind::values, Kind::keys, Kind::rows};
inline constexpr Kinds kRowsFirst = {Kind::rows, Kind::values, Kind::keys};

// The choices in which libtpu's schedules differ.
struct Way {
  Kinds sent = kKeysFirst;      // order in which arrays are sent
  Kinds gathered = kKeysFirst;  // order in which arrays are put together
  // The first array is waited for at this buffer, counted from 1; 0: where a
  // sixth permutation would start.
  size_t waits_at = 0;
  bool largest_first = false;  // an array sends its largest round first
  // Arrays are put together behind all others, as small arrays lie in the gaps.
  bool is_behind = false;
  // What a ragged exchange brings is taken apart during the next one.
  bool is_in_turn = false;
  // Arrays of more than three rounds are put together from the first one on.
  bool is_early = false;
  // An index in given_back(): a small array takes that place before parts go
  // home, which splits a gap in two.
  std::optional<size_t> seam = {};
};
// The heap after all arrays of the program were placed.
Heap play(const MeshProgram& program, const Way& way, bool keeps_fullest);

}  // namespace tessera::fit
