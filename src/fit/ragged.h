// fit/ragged.h: the buffers of ragged exchanges on a device's heap. An exchange
// starts where the previous one ends. Its buffers hold tiles, made from rows
// before it and turned back to rows after it.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "fit/heap.h"
#include "fit/mesh_scratch.h"

namespace tessera::fit {

using Places = std::map<std::string, Heap::Place>;  // by an array's name

// Exchanges the arrays in order and returns where all tiles of each lie.
// `beside` takes memory while the last exchange is under way. What an exchange
// brought is taken apart during the last one, or, if `is_in_turn`, during the
// next.
Places gather_ragged(Heap& heap, const std::vector<Traveller>& travellers,
                     const std::function<void()>& beside, bool is_in_turn);
// Exchanges the results home.
void return_ragged(Heap& heap, const std::vector<Traveller>& homecomers);

}  // namespace tessera::fit
