// base/threads.h: numbered tasks on the cores of this machine.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace tessera {

// Cores that the calling thread may run on: 1 or more.
int machine_threads();

// Refers to a callable `(int64_t task, int worker)`; owns nothing.
class Task {
 public:
  template <class F,
            class = std::enable_if_t<
                std::is_object_v<std::remove_reference_t<F>> &&
                !std::is_same_v<std::remove_cvref_t<F>, Task> &&
                std::is_invocable_v<std::remove_reference_t<F>&, int64_t, int>>>
  Task(F&& f) noexcept
      : object_(const_cast<void*>(static_cast<const void*>(std::addressof(f)))),
        call_([](void* object, int64_t task, int worker) {
          (*static_cast<std::remove_reference_t<F>*>(object))(task, worker);
        }) {}

  void operator()(int64_t task, int worker) const {
    call_(object_, task, worker);
  }

 private:
  void* object_;
  void (*call_)(void* object, int64_t task, int worker);
};

// More threads than this are never used.
inline constexpr int kMaxThreads = 1024;

// Runs every task of [0, tasks) once, on at most `threads` threads, and returns
// when all are done. The caller is worker 0; others are numbered below
// `threads`, and no two tasks run at once with one number.
//
// Order. Tasks are handed out one at a time in ascending order, and a worker
// runs a task as soon as it gets it. So a task may wait for tasks with lower
// numbers without a deadlock: the lowest unfinished task waits for none. Tasks
// of unequal length leave no worker idle while others wait.
//
// Workers live in one pool of the process. It grows when a call asks for more,
// sleeps between calls and is joined when the process exits or the library is
// unloaded. If the system refuses a thread, the call goes on with fewer
// workers. Workers block all signals, which are for the host's threads.
//
// Calls that run alone, on the calling thread as worker 0, in ascending order:
//   - one task, or `threads` of 1 or less: the pool is not touched;
//   - from inside a task;
//   - while another thread's call has the pool: no call waits for another;
//   - while static objects are destroyed, once the pool is.
// After fork() the child makes a pool of its own. A child that was forked from
// inside a task must not return from it: the other workers are not there.
//
// A task must not throw: the process would end.
//
// In a trace each worker's share is a span called `name`, a literal.
void parallel_for(int64_t tasks, int threads, Task task,
                  const char* name = "tasks") noexcept;

}  // namespace tessera
