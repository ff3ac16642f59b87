// route/tasks.h: numbered tasks that may find no memory, which must not end the
// process.
#pragma once

#include <atomic>
#include <cstdint>
#include <new>

#include "base/threads.h"

namespace tessera::routing {

// parallel_for of tasks that may throw std::bad_alloc. The others then end as
// soon as they can, and the caller gets the exception.
template <class F>
void run_tasks(int64_t tasks, int threads, F&& f, const char* name) {
  std::atomic<bool> failed{false};
  const auto run_one = [&](int64_t task, int worker) {
    if (failed.load(std::memory_order_relaxed)) return;
    try {
      f(task, worker);
    } catch (const std::bad_alloc&) {
      failed.store(true, std::memory_order_relaxed);
    }
  };
  parallel_for(tasks, threads, run_one, name);
  if (failed.load(std::memory_order_relaxed)) throw std::bad_alloc();
}

}  // namespace tessera::routing
