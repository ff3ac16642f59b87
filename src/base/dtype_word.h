// base/dtype_word.h: element types as flags, tables and receipts spell them.
#pragma once

#include <cctype>
#include <optional>
#include <string>
#include <string_view>

#include "tessera/attention.h"

namespace tessera {

// The dtype in lower case: "f32".
inline std::string dtype_word(Dtype dtype) {
  std::string out(to_string(dtype));
  for (char& c : out) {
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return out;
}

// The dtype of "f32", "bf16" or "f16", which attention takes; nothing for any
// other word.
inline std::optional<Dtype> attention_dtype(std::string_view word) {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16}) {
    if (word == dtype_word(dtype)) return dtype;
  }
  return std::nullopt;
}

}  // namespace tessera
