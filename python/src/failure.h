// failure.h: errors of the library as Python exceptions with the same message.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

#include "tessera/result.h"

namespace tessera::python {

namespace nb = nanobind;

struct Failure : std::runtime_error {
  explicit Failure(Error e)
      : std::runtime_error(e.message), error(std::move(e)) {}
  Error error;
};

template <class T>
T take(Result<T> result) {
  if (!result) throw Failure(result.error());
  return std::move(*result);
}
inline void take(const Result<void>& result) {
  if (!result) throw Failure(result.error());
}

// An error of the binding itself, for input that the library's types cannot
// express.
[[noreturn]] inline void refuse(std::string message) {
  throw Failure({ErrorKind::invalid, "[python] " + std::move(message), 0});
}

// 0: no limit.
inline int64_t checked_compiles(int64_t max_compiles) {
  if (max_compiles < 0) {
    refuse("max_compiles must be 0, which is no limit, or more, found " +
           std::to_string(max_compiles));
  }
  return max_compiles;
}

void bind_failure(nb::module_& m);  // TesseraError

}  // namespace tessera::python
