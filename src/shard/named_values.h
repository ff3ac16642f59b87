// shard/named_values.h: splits text such as "rows=16,kv=6:12:8".
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tessera/result.h"

namespace tessera::shard {

struct NamedValue {
  std::string_view all, name, value;  // `value` is "" without '='
};
// "" gives none; a repeated name is an error. `what` describes a value.
Result<std::vector<NamedValue>> split_named_values(std::string_view text,
                                                   std::string_view what);
// Parses an integer from `least` to `most`.
Result<int64_t> parse_number(std::string_view word, std::string_view what,
                             int64_t least, int64_t most);
// Parses a decimal number; NaN is an error.
Result<double> parse_ratio(std::string_view word, std::string_view what,
                           double least, double most);

}  // namespace tessera::shard
