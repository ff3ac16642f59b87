// lanes/cpu/scratch.h: scratch memory of a worker or a call, kept for the next.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <utility>

namespace tessera::cpu {

// Floats, aligned to a cache line.
class Scratch {
 public:
  size_t size() const { return size_; }

  // Room for `n` floats. The contents are lost if it has to grow.
  float* floats(size_t n) {
    if (n > size_ || !data_) {
      data_.reset();
      size_ = 0;
      data_.reset(static_cast<float*>(
          ::operator new (n * sizeof(float), std::align_val_t{kAlign})));
      size_ = n;
    }
    return data_.get();
  }

 private:
  static constexpr size_t kAlign = 64;

  struct Free {
    void operator()(float* p) const {
      ::operator delete (p, std::align_val_t{kAlign});
    }
  };
  std::unique_ptr<float, Free> data_;
  size_t size_ = 0;
};

// The calling thread's scratch, for one task at a time; freed at thread exit.
inline Scratch& thread_scratch() {
  static thread_local Scratch scratch;
  return scratch;
}

// Scratch of one call. The thread keeps it for its next call, unless it is
// large.
class CallScratch {
 public:
  CallScratch() { std::swap(scratch_, kept()); }
  ~CallScratch() {
    if (scratch_.size() <= kMaxKept) std::swap(scratch_, kept());
  }
  CallScratch(const CallScratch&) = delete;
  CallScratch& operator=(const CallScratch&) = delete;

  float* floats(size_t n) { return scratch_.floats(n); }

 private:
  static constexpr size_t kMaxKept = size_t{1} << 24;  // 64 MiB

  static Scratch& kept() {
    static thread_local Scratch scratch;
    return scratch;
  }
  Scratch scratch_;
};

}  // namespace tessera::cpu
