// tests/stablehlo_types.h: sizes of the arrays in a program's text.
#pragma once

#include <cctype>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

namespace tessera::testing {

// Elements and bytes of a type such as "2x3xf32". A scalar has 0 bytes.
struct Counted {
  double elements = 1;
  int64_t bytes = 0;
};
inline Counted count(const std::string& type) {
  Counted out;
  const char* at = type.c_str();
  bool array = false;
  for (char* end = nullptr; std::isdigit(*at) != 0; at = end + 1) {
    out.elements *= static_cast<double>(std::strtol(at, &end, 10));
    array = true;
  }
  const std::string element = at;
  const int64_t width = element == "bf16" ? 2 : element == "f64" ? 8 : 4;
  if (array) out.bytes = width * static_cast<int64_t>(out.elements);
  return out;
}

inline std::vector<Counted> types_of(const std::string& text) {
  std::vector<Counted> out;
  for (size_t at = 0; (at = text.find("tensor<", at)) != std::string::npos;) {
    at += 7;
    out.push_back(count(text.substr(at, text.find('>', at) - at)));
  }
  return out;
}

}  // namespace tessera::testing
