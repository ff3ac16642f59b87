// base/aligned_bytes.h: memory for an array, aligned for every kernel, so
// that a plugin on the CPU reads it in place too.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

namespace tessera {

class AlignedBytes {
 public:
  AlignedBytes() = default;            // none, at null
  explicit AlignedBytes(size_t size);  // never null
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
