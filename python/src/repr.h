// repr.h: the one-line `repr` of objects.
#pragma once

#include <string>
#include <string_view>

#include "tessera/attention.h"

namespace tessera::python {

// The most characters of a `repr`.
inline constexpr size_t kLine = 120;

// before + text + after; the text is cut if the line would be too long.
inline std::string one_line(std::string before, std::string_view text,
                            std::string_view after) {
  constexpr std::string_view kCut = "...";
  const size_t taken = before.size() + after.size();
  const size_t room = taken < kLine ? kLine - taken : 0;
  if (text.size() <= room) {
    before += text;
  } else {
    before += text.substr(0, room > kCut.size() ? room - kCut.size() : 0);
    before += kCut;
  }
  before += after;
  return before;
}

// The signature of `__eq__`, which accepts an object of any type.
inline constexpr const char* kEqual =
    "def __eq__(self, other: object, /) -> bool";

// The name of the dtype in NumPy and JAX.
inline const char* name_of(Dtype dtype) {
  if (dtype == Dtype::bf16) return "bfloat16";
  return dtype == Dtype::f16 ? "float16" : "float32";
}

}  // namespace tessera::python
