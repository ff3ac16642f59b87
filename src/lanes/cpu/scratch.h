// lanes/cpu/scratch.h: memory of a worker, kept from call to call.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <utility>

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace tessera {

// Aligned to a cache line, or to a huge page where it is longer than one.
class Scratch {
 public:
  size_t size() const { return size_; }
  float* floats(size_t n) {
    if (n > size_) {
      data_.reset();
      data_.reset(static_cast<float*>(
          ::operator new (n * sizeof(float), std::align_val_t{64})));
      size_ = n;
    }
    return data_.get();
  }

 private:
  static constexpr size_t kAlign = size_t{1} << 21;

  struct Free {
    void operator()(float* p) const {
      ::operator delete (p, std::align_val_t{64});
    }
  };
  std::unique_ptr<float, Free> data_;
  size_t size_ = 0;
};

// Of the calling thread, for one task at a time; it dies with the thread.
inline Scratch& thread_scratch() {
  static thread_local Scratch scratch;
  return scratch;
}

// Of one call. What it leaves is kept for the thread's next call, unless it is
// large.
class CallScratch {
 public:
  CallScratch() { std::swap(scratch_, kept()); }
  ~CallScratch() {
    if (scratch_.size() <= kMostKept) std::swap(scratch_, kept());
  }
  CallScratch(const CallScratch&) = delete;
  CallScratch& operator=(const CallScratch&) = delete;

  float* floats(size_t n) { return scratch_.floats(n); }

 private:
  static constexpr size_t kMostKept = size_t{1} << 24;  // 64 MiB

  static Scratch& kept() {
    static thread_local Scratch scratch;
    return scratch;
  }
  Scratch scratch_;
};

}  // namespace tessera
