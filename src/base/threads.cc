// base/threads.cc: the pool. A call takes the whole pool with one flag. Each
// worker has a state of its own, so that a call wakes exactly the workers it
// needs, and calls off those that are late instead of waiting for them.
#include "base/threads.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <sched.h>
#endif

#include "base/no_signals.h"
#include "base/trace.h"

namespace tessera {
namespace {

// Calls often follow each other at once, and waking a sleeper takes far longer
// than this.
constexpr std::chrono::microseconds kSpin{20};

void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#endif
}

// Whether `ready()` came true while spinning.
template <class Ready>
bool spin(Ready ready) {
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 16; ++i) {
      if (ready()) return true;
      pause();
    }
  } while (std::chrono::steady_clock::now() < end);
  return ready();
}

// Set while this thread runs tasks.
thread_local bool inside = false;

// One call. Lives on the caller's stack: only workers that have begun it read
// it, and the caller waits for those.
struct Job {
  Task task;
  int64_t tasks;
  const char* name;
  alignas(64) std::atomic<int64_t> next{0};  // apart from the read-only fields

  // Runs on the caller and on every worker; a task that throws ends the process
  // here.
  void work(int worker) noexcept {
    const bool outer = inside;
    inside = true;
    TraceSpan span("worker", name);
    int64_t ran = 0;
    for (;;) {
      const int64_t t = next.fetch_add(1, std::memory_order_relaxed);
      if (t >= tasks) break;
      task(t, worker);
      ++ran;
    }
    span.note("tasks", ran);
    inside = outer;
  }
};

class Worker {
 public:
  // Throws if the system refuses a thread.
  explicit Worker(int number) : number_(number), thread_([this] { live(); }) {}

  // Must not run while the worker works on a job.
  ~Worker() {
    set(State::leaving);
    thread_.join();
  }

  void begin(Job& job) {
    job_ = &job;
    set(State::called);
  }

  // Returns once this worker no longer uses the job and will not start it.
  void end() {
    State called = State::called;
    if (state_.compare_exchange_strong(called, State::idle)) return;
    const auto idle = [&] { return state_.load() == State::idle; };
    if (spin(idle)) return;
    std::unique_lock lock(mutex_);
    changed_.wait(lock, idle);
  }

 private:
  enum class State : uint8_t { idle, called, working, leaving };

  void set(State state) {
    {
      const std::lock_guard lock(mutex_);
      state_.store(state);
    }
    changed_.notify_one();
  }

  void live() {
    name_trace_thread("worker", number_);
    for (;;) {
      const auto awake = [&] {
        const State s = state_.load();
        return s == State::called || s == State::leaving;
      };
      if (!spin(awake)) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, awake);
      }
      if (state_.load() == State::leaving) return;
      State called = State::called;
      if (!state_.compare_exchange_strong(called, State::working)) continue;
      job_->work(number_);
      set(State::idle);
    }
  }

  const int number_;
  Job* job_ = nullptr;  // written by the caller while idle
  std::mutex mutex_;
  std::condition_variable changed_;  // the worker or the caller waits on it
  std::atomic<State> state_{State::idle};
  std::thread thread_;  // last: the thread uses the other members
};

class Pool {
 public:
  explicit Pool(const Pool* old) : abandoned(old) {}

  // The pool of the process before fork(): its threads do not exist here and
  // its locks may be held, so it is kept but never touched.
  const Pool* const abandoned;

  void run(Job& job, int threads) noexcept {
    grow(threads - 1);
    const size_t helpers =
        std::min(workers_.size(), static_cast<size_t>(threads - 1));
    for (size_t i = 0; i < helpers; ++i) workers_[i]->begin(job);
    job.work(0);
    for (size_t i = 0; i < helpers; ++i) workers_[i]->end();
  }

 private:
  void grow(int helpers) {
    const auto want = static_cast<size_t>(helpers);
    if (workers_.size() >= want) return;
    const NoSignals none;
    try {
      workers_.reserve(want);
      while (workers_.size() < want) {
        workers_.push_back(
            std::make_unique<Worker>(static_cast<int>(workers_.size()) + 1));
      }
    } catch (...) {
      // No thread or no memory: the call uses the workers that exist.
    }
  }

  std::vector<std::unique_ptr<Worker>> workers_;  // [i] is worker i + 1
};

// The thread that has set `taken` may use `pool`. Both outlive every static
// object.
std::atomic<bool> taken{false};
Pool* pool = nullptr;
const Pool* abandoned = nullptr;
bool closed = false;

bool take() { return !taken.exchange(true, std::memory_order_acquire); }
void give_back() { taken.store(false, std::memory_order_release); }

void in_forked_child() {
  if (pool != nullptr) abandoned = pool;
  pool = nullptr;
  taken.store(closed);
}

struct Lifetime {
  Lifetime() { pthread_atfork(nullptr, nullptr, in_forked_child); }

  ~Lifetime() {
    // exit() from inside a task: the pool cannot wait for this thread.
    if (inside) return;
    while (!take()) std::this_thread::yield();
    closed = true;  // `taken` stays set from here on
    delete pool;
    pool = nullptr;
  }
} lifetime;

}  // namespace

int machine_threads() {
#if defined(__linux__)
  // The kernel refuses a set smaller than its own.
  for (size_t cores = 1024; cores <= (1 << 20); cores *= 2) {
    cpu_set_t* set = CPU_ALLOC(cores);
    if (set == nullptr) break;
    const size_t size = CPU_ALLOC_SIZE(cores);
    const int count =
        sched_getaffinity(0, size, set) == 0 ? CPU_COUNT_S(size, set) : 0;
    CPU_FREE(set);
    if (count > 0) return count;
  }
#endif
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

void parallel_for(int64_t tasks, int threads, Task task,
                  const char* name) noexcept {
  if (tasks <= 0) return;
  Job job{task, tasks, name};
  const int used = static_cast<int>(
      std::min<int64_t>(tasks, std::min(threads, kMaxThreads)));
  if (used <= 1 || inside || !take()) return job.work(0);
  if (pool == nullptr) pool = new (std::nothrow) Pool(abandoned);
  if (pool != nullptr) {
    pool->run(job, used);
  } else {
    job.work(0);
  }
  give_back();
}

}  // namespace tessera
