// pjrt/memory_check.h: checks for available memory before a plugin takes it.
#pragma once

#include <cstdint>
#include <string_view>

#include "pjrt/client.h"

namespace tessera::pjrt {

// A plugin on the CPU shares this machine's memory, and the system ends a
// process that uses more than there is. Other plugins check their own memory.
// `rule` says what must fit: "a run's outputs and scratch must fit in memory".
Result<void> check_memory(const Client& client, int64_t bytes,
                          std::string_view rule);

}  // namespace tessera::pjrt
