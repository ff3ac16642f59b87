// data/arrow_owned.h: owns a struct of Arrow's C interface.
#pragma once

#include "tessera/documents.h"

namespace tessera::data {

// T is ArrowSchema, ArrowArray or ArrowArrayStream.
template <class T>
class Owned {
 public:
  Owned() = default;
  explicit Owned(T& from) : value_(from) { from.release = nullptr; }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() { reset(); }

  void reset() {
    if (value_.release != nullptr) value_.release(&value_);
    value_ = {};
  }
  bool there() const { return value_.release != nullptr; }
  T* get() { return &value_; }
  const T& operator*() const { return value_; }
  const T* operator->() const { return &value_; }

 private:
  T value_ = {};
};

}  // namespace tessera::data
