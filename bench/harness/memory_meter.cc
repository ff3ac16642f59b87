// bench/harness/memory_meter.cc: counts in the global operator new. Each
// allocation costs one relaxed add; the planner makes a few dozen allocations.
#include "bench/harness/memory_meter.h"

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace tessera::bench {
namespace {

std::atomic<int64_t> now_bytes{0};
std::atomic<int64_t> peak_bytes{0};

[[maybe_unused]] void* counted(void* p) {
  if (!p) throw std::bad_alloc();
  const auto size = static_cast<int64_t>(malloc_usable_size(p));
  const int64_t now = now_bytes.fetch_add(size) + size;
  int64_t peak = peak_bytes.load();
  while (now > peak && !peak_bytes.compare_exchange_weak(peak, now)) {
  }
  return p;
}

[[maybe_unused]] void release(void* p) {
  if (!p) return;
  now_bytes.fetch_sub(static_cast<int64_t>(malloc_usable_size(p)));
  std::free(p);
}

}  // namespace

HeapBytes heap_bytes() { return {now_bytes.load(), peak_bytes.load()}; }
void reset_heap_peak() { peak_bytes.store(now_bytes.load()); }

}  // namespace tessera::bench

// A sanitizer needs its own operator new, so there the meter reads zero.
#ifndef TESSERA_SANITIZED

void* operator new(std::size_t size) {
  return tessera::bench::counted(std::malloc(size > 0 ? size : 1));
}
void* operator new[](std::size_t size) { return operator new(size); }
void* operator new(std::size_t size, std::align_val_t alignment) {
  const auto a = static_cast<std::size_t>(alignment);
  return tessera::bench::counted(std::aligned_alloc(a, (size + a - 1) / a * a));
}
void* operator new[](std::size_t size, std::align_val_t alignment) {
  return operator new(size, alignment);
}
void operator delete(void* p) noexcept { tessera::bench::release(p); }
void operator delete[](void* p) noexcept { tessera::bench::release(p); }
void operator delete(void* p, std::size_t) noexcept {
  tessera::bench::release(p);
}
void operator delete[](void* p, std::size_t) noexcept {
  tessera::bench::release(p);
}
void operator delete(void* p, std::align_val_t) noexcept {
  tessera::bench::release(p);
}
void operator delete[](void* p, std::align_val_t) noexcept {
  tessera::bench::release(p);
}
void operator delete(void* p, std::size_t, std::align_val_t) noexcept {
  tessera::bench::release(p);
}
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept {
  tessera::bench::release(p);
}

#endif  // TESSERA_SANITIZED
