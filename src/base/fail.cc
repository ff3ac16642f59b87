#include "base/fail.h"

#include <fmt/format.h>

#include <iterator>
#include <string>
#include <utility>

#include "base/text.h"

namespace tessera {

Error failure(ErrorKind kind, std::string_view where, fmt::string_view text,
              fmt::format_args args) {
  std::string message = "[";
  message += where;
  message += "] ";
  fmt::vformat_to(std::back_inserter(message), text, args);
  return {kind, std::move(message)};
}

Error in_file(Error error, std::string_view path) {
  error.message += " (in " + in_quotes(path) + ")";
  return error;
}

}  // namespace tessera
