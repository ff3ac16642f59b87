// shard/named_values.h: text such as "rows=16,kv=6:12:8", apart.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tessera/result.h"

namespace tessera::shard {

struct NamedValue {
  std::string_view all, name, value;  // without '=' the value is ""
};
// None of "". A name that stands twice is an error; `what` is what each tells.
Result<std::vector<NamedValue>> split_named_values(std::string_view text,
                                                   std::string_view what);
// A whole number from `least` to `most`, of `what`.
Result<int64_t> parse_number(std::string_view word, std::string_view what,
                             int64_t least, int64_t most);
// A decimal number, no NaN.
Result<double> parse_ratio(std::string_view word, std::string_view what,
                           double least, double most);

}  // namespace tessera::shard
