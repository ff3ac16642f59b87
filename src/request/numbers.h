// request/numbers.h: parses numbers and parts of typed text. Errors of this
// folder say [cli] and name flags, whichever caller passes the text.
#pragma once

#include <cstdint>
#include <set>
#include <string_view>
#include <vector>

#include "tessera/result.h"

namespace tessera::request {

// `what` names the value in errors: "--q-len".
Result<int64_t> parse_int(std::string_view text, std::string_view what,
                          int64_t least, int64_t most);
Result<double> parse_positive(std::string_view text, std::string_view what);
Result<double> parse_from_zero(std::string_view text, std::string_view what);

// "1,2,3"
Result<std::vector<int32_t>> parse_ints(std::string_view text,
                                        std::string_view what, int64_t least,
                                        int64_t most);

std::vector<std::string_view> split(std::string_view text, char separator);
std::string_view trim(std::string_view text);
// An error if `name` was seen before. `what` names the option in errors.
Result<void> take_once(std::set<std::string_view>& seen, std::string_view name,
                       const char* where, std::string_view what);
// Removes the prefix from `text`; false if it is not there.
bool take_prefix(std::string_view& text, std::string_view prefix);

}  // namespace tessera::request
