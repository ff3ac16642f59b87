// base/huge_pages.h: room for much data that is written once, front to back.
#pragma once

#include <cstddef>
#include <vector>

namespace tessera {

// Asks the kernel for large pages where `bytes` will be: giving memory a small
// page at a time costs more than writing it. A hint: without it all is the
// same.
void prefer_huge_pages(void* begin, size_t bytes);

// Room for `size` values in an empty vector, on large pages.
template <class T>
void reserve_huge(std::vector<T>& to, size_t size) {
  if (to.capacity() >= size) return;
  to.reserve(size);
  prefer_huge_pages(to.data(), size * sizeof(T));
}

}  // namespace tessera
