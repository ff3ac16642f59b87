// tests/heap.h: the heap meter of tests: what calls leave behind.
#pragma once

#include <malloc.h>

#include <cstddef>

#ifdef TESSERA_SANITIZED
#include <sanitizer/allocator_interface.h>
#endif

namespace tessera::testing {

// Bytes that are in use, in every arena and beside them.
inline size_t heap_bytes() {
#ifdef TESSERA_SANITIZED
  return __sanitizer_get_current_allocated_bytes();
#else
  const auto m = mallinfo2();
  return m.uordblks + m.hblkhd;
#endif
}

}  // namespace tessera::testing
