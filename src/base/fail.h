// base/fail.h: makes errors that read "[where] rule, found X for Y".
#pragma once

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "tessera/result.h"

namespace tessera {

template <class... Args>
Error invalid(std::string_view where, fmt::format_string<Args...> text,
              Args&&... args) {
  return {ErrorKind::invalid,
          fmt::format("[{}] ", where) +
              fmt::format(text, std::forward<Args>(args)...)};
}

template <class... Args>
Error over_limit(std::string_view where, fmt::format_string<Args...> text,
                 Args&&... args) {
  return {ErrorKind::limit, fmt::format("[{}] ", where) +
                                fmt::format(text, std::forward<Args>(args)...)};
}

template <class... Args>
Error io_error(std::string_view where, fmt::format_string<Args...> text,
               Args&&... args) {
  return {ErrorKind::io, fmt::format("[{}] ", where) +
                             fmt::format(text, std::forward<Args>(args)...)};
}

template <class... Args>
Error unavailable(std::string_view where, fmt::format_string<Args...> text,
                  Args&&... args) {
  return {ErrorKind::unavailable,
          fmt::format("[{}] ", where) +
              fmt::format(text, std::forward<Args>(args)...)};
}

}  // namespace tessera
