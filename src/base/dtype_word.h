// base/dtype_word.h: element types as flags, tables and receipts spell them.
#pragma once

#include <cctype>
#include <string>

#include "tessera/tensor.h"

namespace tessera {

// "f32"
inline std::string dtype_word(Dtype dtype) {
  std::string out(to_string(dtype));
  for (char& c : out) {
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return out;
}

}  // namespace tessera
