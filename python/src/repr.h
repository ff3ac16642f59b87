// repr.h: the one line by which an object shows itself.
#pragma once

#include <string>
#include <string_view>

#include "tessera/attention.h"

namespace tessera::python {

// What a `repr` may have: it stands in a list, a log or a debugger.
inline constexpr size_t kLine = 120;

// before + text + after, where a text that is too long for a line is cut.
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

// Of `__eq__`: anything may be compared, and another type is not equal.
inline constexpr const char* kEqual =
    "def __eq__(self, other: object, /) -> bool";

// As NumPy and JAX name it.
inline const char* name_of(Dtype dtype) {
  if (dtype == Dtype::bf16) return "bfloat16";
  return dtype == Dtype::f16 ? "float16" : "float32";
}

}  // namespace tessera::python
