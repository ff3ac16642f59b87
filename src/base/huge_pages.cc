// base/huge_pages.cc: asks Linux for huge pages with madvise().
#include "base/huge_pages.h"

#include <cstdint>

#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace tessera {
namespace {

// A range of this size holds a whole huge page wherever it begins.
constexpr size_t kMinBytes = size_t{4} << 20;

}  // namespace

void prefer_huge_pages(void* begin, size_t bytes) {
  if (bytes < kMinBytes) return;
#if defined(__linux__)
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<uintptr_t>(begin);
  // Only whole pages: partial ones may hold other data.
  const uintptr_t skipped = (page - first % page) % page;
  const size_t whole = (bytes - skipped) / page * page;
  (void)madvise(static_cast<char*>(begin) + skipped, whole, MADV_HUGEPAGE);
#else
  (void)begin;
#endif
}

}  // namespace tessera
