// base/shape.h: the sizes of arrays.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace tessera {

inline constexpr size_t kMaxDimensions = 32;

// The product of untrusted dimensions; nothing if one is negative or the
// product overflows.
std::optional<int64_t> element_count(std::span<const int64_t> shape);

// The product of dimensions that were checked before.
int64_t elements_of(std::span<const int64_t> shape);

std::string shape_text(std::span<const int64_t> shape);  // "[2, 3]"

}  // namespace tessera
