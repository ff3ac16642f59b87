// base/digest.h: 128-bit digests, the same on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tessera {

class Digest {
 public:
  Digest();
  ~Digest();
  Digest(const Digest&) = delete;
  Digest& operator=(const Digest&) = delete;

  void add(const void* bytes, size_t size);
  void add(int64_t value) { add(&value, sizeof value); }
  // Adds the length first, so that no two lists of texts hash the same bytes.
  void add_text(std::string_view text);
  std::string hex() const;  // 32 digits

 private:
  void* state_;
};

std::string digest_of(std::string_view bytes);  // Digest::hex() of them

}  // namespace tessera
