// fit/ragged.h: the buffers of ragged exchanges on a device's heap. One starts
// where the one before it ends; its buffers hold tiles, which are rows before
// and behind it.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "fit/heap.h"
#include "fit/mesh_scratch.h"

namespace tessera::fit {

using Places = std::map<std::string, Heap::Place>;  // by an array's name

// In their order. What attends reads all tiles of each array. `beside` is made
// while the last one is under way. What came is taken apart behind all of them,
// or, where it `is_in_turn`, behind the next.
Places gather_ragged(Heap& heap, const std::vector<Traveller>& travellers,
                     const std::function<void()>& beside, bool is_in_turn);
// What was made of them goes home.
void return_ragged(Heap& heap, const std::vector<Traveller>& homecomers);

}  // namespace tessera::fit
