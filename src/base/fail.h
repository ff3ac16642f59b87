// base/fail.h: makes errors that read "[where] rule, found X for Y".
#pragma once

#include <fmt/format.h>

#include <string_view>

#include "tessera/result.h"

namespace tessera {

// Implements the four functions below, which only check `text` against the
// arguments at compile time.
Error failure(ErrorKind kind, std::string_view where, fmt::string_view text,
              fmt::format_args args);

template <class... Args>
Error invalid(std::string_view where, fmt::format_string<Args...> text,
              Args&&... args) {
  return failure(ErrorKind::invalid, where, text,
                 fmt::make_format_args(args...));
}

template <class... Args>
Error over_limit(std::string_view where, fmt::format_string<Args...> text,
                 Args&&... args) {
  return failure(ErrorKind::limit, where, text, fmt::make_format_args(args...));
}

template <class... Args>
Error io_error(std::string_view where, fmt::format_string<Args...> text,
               Args&&... args) {
  return failure(ErrorKind::io, where, text, fmt::make_format_args(args...));
}

template <class... Args>
Error unavailable(std::string_view where, fmt::format_string<Args...> text,
                  Args&&... args) {
  return failure(ErrorKind::unavailable, where, text,
                 fmt::make_format_args(args...));
}

// Adds the file's path to an error; an empty path adds nothing.
Error in_file(Error error, std::string_view path);
// The same for a result, if it is an error.
template <class T>
Result<T> in_file(Result<T> read, std::string_view path) {
  if (!read) return in_file(read.error(), path);
  return read;
}

}  // namespace tessera
