// lanes/cpu/scratch.h: memory of a worker, kept from call to call.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

namespace tessera {

// Aligned to a cache line.
class Scratch {
 public:
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
  struct Free {
    void operator()(float* p) const {
      ::operator delete (p, std::align_val_t{64});
    }
  };
  std::unique_ptr<float, Free> data_;
  size_t size_ = 0;
};

// Of the calling thread; it dies with the thread.
inline Scratch& thread_scratch() {
  static thread_local Scratch scratch;
  return scratch;
}

}  // namespace tessera
