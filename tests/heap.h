// tests/heap.h: the heap meter of tests: what calls leave behind.
#pragma once

#include <malloc.h>

#include <cstddef>

namespace tessera::testing {

// Bytes that are in use, in every arena and beside them.
inline size_t heap_bytes() {
  const auto m = mallinfo2();
  return m.uordblks + m.hblkhd;
}

}  // namespace tessera::testing
