// lanes/xla/writer_text.h: pieces of StableHLO text for the writer's files.
#pragma once

#include <fmt/format.h>

#include <string>

#include "lanes/xla/writer.h"

namespace tessera::xla {

template <class Range, class Text>
std::string joined(const Range& range, Text text) {
  std::string out;
  for (const auto& each : range) {
    if (!out.empty()) out += ", ";
    out += text(each);
  }
  return out;
}

template <class Range>
std::string names_of(const Range& values) {
  return joined(values, [](const Value& v) { return v.name; });
}

template <class Range>
std::string types_of(const Range& values) {
  return joined(values, [](const Value& v) { return to_string(v.type); });
}

inline std::string numbers(const Dims& dims) {
  return joined(dims, [](int64_t n) { return fmt::to_string(n); });
}

// MLIR writes an empty list differently.
inline std::string array_text(const Dims& dims) {
  return dims.empty() ? "array<i64>"
                      : fmt::format("array<i64: {}>", numbers(dims));
}

// The sizes without those of the dimensions `gone`.
Dims without(const Dims& dims, const Dims& gone);

bool is_real(const Type& t);

}  // namespace tessera::xla
