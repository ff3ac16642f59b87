#include "base/fail.h"

#include <fmt/format.h>

#include <iterator>
#include <string>
#include <utility>

namespace tessera {

Error failure(ErrorKind kind, std::string_view where, fmt::string_view text,
              fmt::format_args args) {
  std::string message = "[";
  message += where;
  message += "] ";
  fmt::vformat_to(std::back_inserter(message), text, args);
  return {kind, std::move(message)};
}

}  // namespace tessera
