// fit/mesh_order.h: the program of lane xla on a mesh, array by array in the
// order of its compiler's schedule, as far as that is known.
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

// What libtpu's schedules differed in.
struct Way {
  Kinds sent = kKeysFirst;      // in which turn they travel
  Kinds gathered = kKeysFirst;  // and are put together
  // The buffer at which the first array is waited for, from 1 on; 0: where a
  // sixth permutation would start.
  size_t waits_at = 0;
  bool largest_first = false;  // of an array's rounds
  // Small arrays lie in the gaps where what is put together would lie.
  bool is_behind = false;
  // What ragged exchanges bring is taken apart as it comes.
  bool is_in_turn = false;
  // Arrays of many rounds are put together from their first one on.
  bool is_early = false;
  // Which place, of those given back so far, a small array has taken before
  // parts go home: what was one gap is two.
  std::optional<size_t> seam = {};
};
Heap play(const MeshProgram& program, const Way& way, bool keeps_fullest);

}  // namespace tessera::fit
