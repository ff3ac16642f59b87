// bench/harness/memory_meter.h: bytes of heap in use, and their peak.
#pragma once

#include <cstdint>

namespace tessera::bench {

struct HeapBytes {
  int64_t now = 0;
  int64_t peak = 0;  // since the last reset_heap_peak
};

HeapBytes heap_bytes();
void reset_heap_peak();

}  // namespace tessera::bench
