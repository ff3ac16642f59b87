// data/arrow_numbers.h: reads numbers and bits from buffers of any alignment.
#pragma once

#include <cstdint>
#include <cstring>

namespace tessera::data {

template <class T>
T load(const void* buffer, int64_t i) {
  T value;
  std::memcpy(
      &value,
      static_cast<const char*>(buffer) + i * static_cast<int64_t>(sizeof(T)),
      sizeof(T));
  return value;
}

inline bool load_bit(const void* buffer, int64_t i) {
  return (static_cast<const unsigned char*>(buffer)[i / 8] >> (i % 8) & 1) != 0;
}

}  // namespace tessera::data
