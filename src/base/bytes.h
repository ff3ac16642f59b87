// base/bytes.h: numbers in and out of byte strings. Numbers are copied, because
// bytes from a file have no alignment.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace tessera {

// Files are little-endian and numbers are copied as they lie in memory.
static_assert(std::endian::native == std::endian::little);

// The caller has checked that `bytes` is long enough.
template <class T>
T load(std::string_view bytes, size_t at = 0) {
  static_assert(std::is_trivially_copyable_v<T>);
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

template <class T>
std::vector<T> load_array(std::string_view bytes) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> values(bytes.size() / sizeof(T));
  if (!values.empty()) {
    std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  }
  return values;
}

template <class T>
std::string_view bytes_of(std::span<const T> values) {
  static_assert(std::is_trivially_copyable_v<T>);
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

template <class T>
void append(std::string& out, const T& value) {
  out += bytes_of(std::span<const T>(&value, 1));
}

}  // namespace tessera
