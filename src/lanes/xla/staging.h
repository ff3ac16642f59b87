// lanes/xla/staging.h: a tensor as the dense, padded array that a program
// reads, and back. A tensor that is such an array already is not copied.
#pragma once

#include <cstdint>
#include <vector>

#include "lanes/xla/writer.h"
#include "tessera/tensor.h"

namespace tessera::xla {

// Memory that is read in place, or a copy.
class Staged {
 public:
  // [batch, heads, tokens, dim], no dimension below the tensor's; zeros beyond
  // it.
  Staged(const TensorView& tensor, const Dims& dims);
  // [batch, heads, tokens] of the same; `beyond` where the array ends before.
  Staged(const float* data, const Dims& from, const Dims& dims, float beyond);

  const void* data() const { return data_; }

 private:
  const void* data_ = nullptr;
  std::vector<uint8_t> copy_;
};

// Where a result can go straight: null where it must be copied afterwards.
void* in_place(const MutableTensorView& tensor, const Dims& dims);
// What the tensor holds of such an array.
void unstage(const void* array, const Dims& dims,
             const MutableTensorView& tensor);
void unstage(const float* array, const Dims& dims, float* to, const Dims& from);

}  // namespace tessera::xla
