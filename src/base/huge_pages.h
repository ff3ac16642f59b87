// base/huge_pages.h: memory for large data that is written once, front to back.
#pragma once

#include <cstddef>
#include <vector>

namespace tessera {

// Asks the kernel for huge pages for `bytes` bytes at `begin`: getting memory
// in small pages costs more than writing it. This is a hint; results do not
// depend on it.
void prefer_huge_pages(void* begin, size_t bytes);

// Reserves `size` values in an empty vector, on huge pages.
template <class T>
void reserve_huge(std::vector<T>& to, size_t size) {
  if (to.capacity() >= size) return;
  to.reserve(size);
  prefer_huge_pages(to.data(), size * sizeof(T));
}

}  // namespace tessera
