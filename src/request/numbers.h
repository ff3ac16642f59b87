// request/numbers.h: numbers and parts out of what was typed. Errors of this
// folder say [cli] and name flags: they are about what was typed, whoever
// reads.
#pragma once

#include <cstdint>
#include <set>
#include <string_view>
#include <vector>

#include "tessera/result.h"

namespace tessera::request {

// `what` is how errors call the value: "--q-len".
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
// An error where `name` was seen. `what` is how errors call what takes it.
Result<void> take_once(std::set<std::string_view>& seen, std::string_view name,
                       const char* where, std::string_view what);
// Whether it was there; then `text` is what follows.
bool take_prefix(std::string_view& text, std::string_view prefix);

}  // namespace tessera::request
