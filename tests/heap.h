// tests/heap.h: measures heap memory that calls do not free.
#pragma once

#include <malloc.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#ifdef TESSERA_SANITIZED
#include <sanitizer/allocator_interface.h>
#endif

namespace tessera::testing {

// Bytes in use, in all arenas and in mapped blocks.
inline size_t heap_bytes() {
#ifdef TESSERA_SANITIZED
  return __sanitizer_get_current_allocated_bytes();
#else
  const auto m = mallinfo2();
  return m.uordblks + m.hblkhd;
#endif
}

// The least growth of the heap over several runs of `work`. A leak grows it in
// every run; memory that a plugin keeps now and then does not.
template <typename Work>
int64_t least_left_by(const Work& work) {
  int64_t least = INT64_MAX;
  for (int i = 0; i < 8; ++i) {
    const auto before = static_cast<int64_t>(heap_bytes());
    work();
    least = std::min(least, static_cast<int64_t>(heap_bytes()) - before);
  }
  return least;
}

}  // namespace tessera::testing
