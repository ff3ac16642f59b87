// base/aligned_bytes.cc: memory aligned to 64 bytes, a cache line.
#include "base/aligned_bytes.h"

#include <algorithm>
#include <new>

namespace tessera {
namespace {

constexpr std::align_val_t kAlignment{64};

}  // namespace

AlignedBytes::AlignedBytes(size_t size)
    : size_(size),
      bytes_(static_cast<std::byte*>(
          ::operator new(std::max<size_t>(size, 1), kAlignment))) {}

void AlignedBytes::Free::operator()(std::byte* p) const {
  ::operator delete(p, kAlignment);
}

}  // namespace tessera
