// arrow_files/side_by_side_test.cc: work on threads, also when memory is short.
#include "arrow_files/side_by_side.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <vector>

namespace {

// The number of the allocation that fails, counted over all threads from now
// on. Below 1: none fails.
std::atomic<int64_t> fails{0};

}  // namespace

// Not inlined: gcc would assume that memory from malloc comes from `new`.
[[gnu::noinline]] void* operator new(size_t bytes) {
  if (fails.load() > 0 && fails.fetch_sub(1) == 1) throw std::bad_alloc();
  if (void* const memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory,
                                       size_t /*bytes*/) noexcept {
  std::free(memory);
}

namespace tessera::arrow_files {
namespace {

TEST(SideBySide, DoesEachPartOnce) {
  for (const int threads : {-1, 0, 1, 2, 7}) {
    for (const size_t count : {size_t{0}, size_t{1}, size_t{5}, size_t{100}}) {
      std::vector<int> done(count);
      const auto status = side_by_side(threads, count, [&](size_t part) {
        ++done[part];
        return arrow::Status::OK();
      });
      EXPECT_TRUE(status.ok());
      EXPECT_EQ(done, std::vector<int>(count, 1));
    }
  }
}

TEST(SideBySide, TheFirstPartThatFailsTells) {
  for (const size_t throws : {size_t{2}, size_t{6}}) {
    const auto run = [&] {
      return side_by_side(3, 9, [&](size_t part) -> arrow::Status {
        if (part == throws) throw std::runtime_error("thrown");
        if (part == 4 || part == 7) return arrow::Status::Invalid("said");
        return arrow::Status::OK();
      });
    };
    if (throws == 2) {
      EXPECT_THROW((void)run(), std::runtime_error);
    } else {
      EXPECT_EQ(run().message(), "said");
    }
  }
}

// Whichever allocation fails, all parts are done, or an error is returned after
// all threads have ended.
TEST(SideBySide, MemoryMayBeShortAnywhere) {
  int errors = 0, fewer = 0;
  bool failed = true;
  for (int64_t at = 1; failed; ++at) {
    std::vector<int> done(6);
    std::vector<int*> made(done.size());
    fails = at;
    try {
      const auto status = side_by_side(4, done.size(), [&](size_t part) {
        made[part] = new int(1);
        done[part] = *made[part];
        return arrow::Status::OK();
      });
      failed = fails.exchange(0) == 0;
      EXPECT_TRUE(status.ok());
      EXPECT_EQ(done, std::vector<int>(done.size(), 1)) << at;
      fewer += failed ? 1 : 0;
    } catch (const std::bad_alloc&) {
      fails = 0;
      ++errors;
    }
    for (const int* one : made) delete one;
  }
  EXPECT_GT(errors, 2);  // before any thread starts, and of parts
  EXPECT_GT(fewer, 1);   // allocations for threads
}

}  // namespace
}  // namespace tessera::arrow_files
