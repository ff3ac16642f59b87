// base/shape.h: the sizes of arrays.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace tessera {

inline constexpr size_t kMaxDimensions = 32;

// Of an array that a stranger claims to have: the product of the dimensions;
// nothing where one is negative or it overflows.
std::optional<int64_t> element_count(std::span<const int64_t> shape);

// The same of an array that is there: its size was checked.
int64_t elements_of(std::span<const int64_t> shape);

std::string shape_text(std::span<const int64_t> shape);  // "[2, 3]"

}  // namespace tessera
