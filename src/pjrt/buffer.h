// pjrt/buffer.h: an array in a device's memory, and the way there and back.
#pragma once

#include <cstdint>
#include <vector>

#include "pjrt/client.h"
#include "pjrt/handle.h"
#include "tessera/tensor.h"

struct PJRT_Buffer;

namespace tessera::pjrt {

template <>
void Destroyer<PJRT_Buffer>::operator()(PJRT_Buffer* object) const;

// In row-major order, without gaps.
struct ArrayType {
  Dtype dtype = Dtype::f32;
  std::vector<int64_t> dims;  // none: a scalar

  bool operator==(const ArrayType&) const = default;
};
Result<int64_t> byte_size(const ArrayType& type);  // an overflow is an error

class Buffer {
 public:
  const ArrayType& type() const { return type_; }
  PJRT_Buffer* handle() const { return handle_.get(); }

 private:
  friend class BufferMaker;  // buffer.cc, and execute.cc for outputs

  ArrayType type_;
  Handle<PJRT_Buffer> handle_;
};

// Where the plugin can, the buffer reads `data` in place: it must stay as it is
// until the buffer is gone. Else a copy was made when this returns.
Result<Buffer> to_device(const Client& client, const Device& device,
                         const ArrayType& type, const void* data);

// Waits until the buffer holds its value, and copies it. `bytes` must be the
// type's size.
Result<void> to_host(const Buffer& buffer, void* data, int64_t bytes);

}  // namespace tessera::pjrt
