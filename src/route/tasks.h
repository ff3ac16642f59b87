// route/tasks.h: runs numbered tasks and survives a failed allocation.
#pragma once

#include <atomic>
#include <cstdint>
#include <new>

#include "base/stopped.h"
#include "base/threads.h"

namespace tessera::routing {

// A parallel_for whose tasks may throw std::bad_alloc. The other tasks then end
// early, and the caller gets the exception. Returns false if `stopped` returned
// true, in which case some tasks did not run.
template <class F>
bool run_tasks(int64_t tasks, int threads, F&& f, const char* name,
               const Stopped& stopped = {}) {
  std::atomic<bool> failed{false}, ended{false};
  const auto run_one = [&](int64_t task, int worker) {
    if (failed.load(std::memory_order_relaxed) ||
        ended.load(std::memory_order_relaxed)) {
      return;
    }
    // Worker 0 is the calling thread.
    if (worker == 0 && stopped && stopped()) {
      ended.store(true, std::memory_order_relaxed);
      return;
    }
    try {
      f(task, worker);
    } catch (const std::bad_alloc&) {
      failed.store(true, std::memory_order_relaxed);
    }
  };
  parallel_for(tasks, threads, run_one, name);
  if (failed.load(std::memory_order_relaxed)) throw std::bad_alloc();
  return !ended.load(std::memory_order_relaxed);
}

}  // namespace tessera::routing
