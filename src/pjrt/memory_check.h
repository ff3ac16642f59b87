// pjrt/memory_check.h: whether memory can be had, asked before a plugin takes
// it.
#pragma once

#include <cstdint>
#include <string_view>

#include "pjrt/client.h"

namespace tessera::pjrt {

// A plugin on the CPU shares this machine's memory, and the system ends a
// process that uses more of it than there is. Other plugins know their own.
// `rule` says what must fit: "a run's outputs and scratch must fit in memory".
Result<void> check_memory(const Client& client, int64_t bytes,
                          std::string_view rule);

}  // namespace tessera::pjrt
