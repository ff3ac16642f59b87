// tests/little_memory.h: runs work with too little memory.
#pragma once

#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <functional>
#include <new>

// Sanitizers need far more address space than they use.
#ifndef TESSERA_SANITIZED

namespace tessera::testing {

// Runs `work` in a child process that may allocate only `room` bytes more.
// Returns whether the child exits normally, after the work or after bad_alloc.
inline bool ends_by_itself(uint64_t room, const std::function<void()>& work) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    // Gives free memory back and resets the mmap threshold, so that earlier
    // work of this process does not matter.
    mallopt(M_MMAP_THRESHOLD, 1 << 17);
    malloc_trim(0);
    std::ifstream statm("/proc/self/statm");
    uint64_t pages = 0;
    statm >> pages;
    const uint64_t most =
        pages * static_cast<uint64_t>(sysconf(_SC_PAGESIZE)) + room;
    const rlimit limit = {most, most};
    if (setrlimit(RLIMIT_AS, &limit) != 0) _exit(1);
    try {
      work();
    } catch (const std::bad_alloc&) {
      // Expected: an exception, and not the end of the process.
    }
    _exit(0);
  }
  int status = -1;
  EXPECT_GT(child, 0);
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace tessera::testing

#endif
