// run/dtype_word.h: words that dispatch shares with its tables.
#pragma once

#include <cctype>
#include <string>

#include "tessera/tensor.h"

namespace tessera {

// "f32", as flags and receipts spell it.
inline std::string dtype_word(Dtype dtype) {
  std::string out(to_string(dtype));
  for (char& c : out) {
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return out;
}

}  // namespace tessera
