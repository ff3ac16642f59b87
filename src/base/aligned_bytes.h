// base/aligned_bytes.h: array memory with an alignment that suits every kernel
// and lets a plugin on the CPU read it in place.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

namespace tessera {

class AlignedBytes {
 public:
  AlignedBytes() = default;            // no bytes; data() is null
  explicit AlignedBytes(size_t size);  // data() is never null
  std::byte* data() const { return bytes_.get(); }
  std::string_view view() const {
    return {reinterpret_cast<const char*>(bytes_.get()), size_};
  }

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };
  size_t size_ = 0;
  std::unique_ptr<std::byte[], Free> bytes_;
};

}  // namespace tessera
