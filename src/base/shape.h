// base/shape.h: the size of an array that a file claims to hold.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace tessera {

inline constexpr size_t kMaxDimensions = 32;

// Product of the dimensions; nothing where one is negative or it overflows.
std::optional<int64_t> element_count(std::span<const int64_t> shape);

}  // namespace tessera
