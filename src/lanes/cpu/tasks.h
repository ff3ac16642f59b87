// lanes/cpu/tasks.h: runs the tasks of one call, with progress, the caller's
// stop flag, and running out of memory as an error.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <new>

#include "base/fail.h"
#include "base/threads.h"
#include "lanes/cpu/work.h"
#include "lanes/stop.h"
#include "tessera/result.h"

namespace tessera::cpu {

class Tasks {
 public:
  explicit Tasks(const CpuOptions& options, const StopFlag* stop = nullptr)
      : threads_(threads_of(options)), stop_(stop) {}

  int threads() const { return threads_; }
  // A task ran out of memory or the call was stopped; other tasks end early.
  bool failed() const { return failed_.load(std::memory_order_acquire); }
  // Whether the caller wants the call to end; if so, the call has failed.
  bool stop_asked() {
    if (!stop_ || !stop_->stopped()) return false;
    stopped_.store(true, std::memory_order_relaxed);
    failed_.store(true, std::memory_order_release);
    return true;
  }
  // Null: the call cannot be stopped.
  const StopFlag* stop() const { return stop_; }

  // Runs f(task, worker) for every task of [0, tasks); `name` is for traces.
  template <class F>
  Result<void> run(const char* name, int64_t tasks,
                   const std::function<void(double)>& progress, F&& f) {
    std::atomic<int64_t> done{0};
    const auto run_one = [&](int64_t task, int worker) {
      if (failed() || stop_asked()) return;
      try {
        f(task, worker);
      } catch (const std::bad_alloc&) {
        failed_.store(true, std::memory_order_release);
      }
      if (stop_asked()) return;  // the task may have ended early
      const int64_t n = done.fetch_add(1, std::memory_order_relaxed) + 1;
      if (worker == 0 && progress && n < tasks) {
        progress(static_cast<double>(n) / static_cast<double>(tasks));
      }
    };
    parallel_for(tasks, threads_, run_one, name);
    if (stopped_.load(std::memory_order_relaxed)) {
      return stopped_error(
          "cpu", fmt::format("after {} of {} {}", done.load(), tasks, name));
    }
    if (failed()) {
      return over_limit("cpu",
                        "working memory must be there, found none left for {} "
                        "tasks on {} threads",
                        tasks, threads_);
    }
    if (progress) progress(1);
    return {};
  }
  template <class F>
  Result<void> run(const char* name, int64_t tasks, F&& f) {
    return run(name, tasks, nullptr, f);
  }

 private:
  int threads_;
  const StopFlag* stop_;
  std::atomic<bool> failed_{false}, stopped_{false};
};

}  // namespace tessera::cpu
