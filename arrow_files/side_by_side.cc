// arrow_files/side_by_side.cc: runs independent parts of work on threads.
#include "arrow_files/side_by_side.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <vector>

namespace tessera::arrow_files {
namespace {

// Blocks signals in threads made meanwhile: the main program handles them.
class NoSignals {
 public:
  NoSignals() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old_);
  }
  ~NoSignals() { pthread_sigmask(SIG_SETMASK, &old_, nullptr); }
  NoSignals(const NoSignals&) = delete;
  NoSignals& operator=(const NoSignals&) = delete;

 private:
  sigset_t old_ = {};
};

class Joined {
 public:
  Joined(int64_t count, const std::function<void()>& work) {
    const NoSignals none;
    try {
      threads_.reserve(static_cast<size_t>(std::max<int64_t>(0, count)));
      for (int64_t t = 0; t < count; ++t) threads_.emplace_back(work);
    } catch (const std::exception&) {
      // No thread or no memory: the threads that exist do all the work.
    }
  }
  ~Joined() {
    for (std::thread& thread : threads_) thread.join();
  }
  Joined(const Joined&) = delete;
  Joined& operator=(const Joined&) = delete;

 private:
  std::vector<std::thread> threads_;
};

}  // namespace

arrow::Status side_by_side(
    int threads, size_t count,
    const std::function<arrow::Status(size_t part)>& work) {
  std::vector<arrow::Status> said(count);
  std::vector<std::exception_ptr> thrown(count);
  std::atomic<size_t> next{0};
  const auto take_parts = [&] {
    for (size_t part = next++; part < count; part = next++) {
      try {
        said[part] = work(part);
      } catch (const std::exception&) {
        thrown[part] = std::current_exception();  // needs no memory
      }
    }
  };
  {
    const auto most = static_cast<int64_t>(count);
    const Joined others(std::min<int64_t>(threads, most) - 1, take_parts);
    take_parts();
  }
  for (size_t part = 0; part < count; ++part) {
    if (thrown[part]) std::rethrow_exception(thrown[part]);
    ARROW_RETURN_NOT_OK(said[part]);
  }
  return arrow::Status::OK();
}

}  // namespace tessera::arrow_files
