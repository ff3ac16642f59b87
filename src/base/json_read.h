// base/json_read.h: reads untrusted JSON strictly: no exceptions, no deep
// recursion, no duplicate keys, no silent conversion of a number's type.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "tessera/result.h"

namespace tessera {

using Json = nlohmann::json;

inline constexpr int kMaxJsonDepth = 16;

// A parsed value. It is freed without an allocation: Json's own destructor
// allocates, and ends the process if that fails. So nothing can be moved out of
// the value, and no large part of it may be copied.
class ParsedJson {
 public:
  ParsedJson(ParsedJson&&) noexcept = default;
  ParsedJson& operator=(ParsedJson&& other) noexcept {
    value_.swap(other.value_);
    return *this;
  }
  ~ParsedJson();

  const Json& operator*() const& { return value_; }
  const Json& operator*() const&& = delete;  // the reference would dangle

 private:
  friend Result<ParsedJson> parse_json(std::string_view, std::string_view);
  explicit ParsedJson(Json&& value) noexcept : value_(std::move(value)) {}

  Json value_;
};

// `where` names the reader in errors: "[spec] ...".
Result<ParsedJson> parse_json(std::string_view text, std::string_view where);

// What a value is, for "found X": "the string 'abc'", "the integer 7", "null".
std::string describe(const Json& value);

// `name` is how errors call the value: "q_len", "request.tile".
Result<int64_t> read_int(const Json& value, std::string_view where,
                         std::string_view name, int64_t least, int64_t most);
Result<double> read_number(const Json& value, std::string_view where,
                           std::string_view name);
Result<bool> read_bool(const Json& value, std::string_view where,
                       std::string_view name);
Result<std::string> read_string(const Json& value, std::string_view where,
                                std::string_view name);
// A string without control characters, which a report may print as it is.
Result<std::string> read_line(const Json& value, std::string_view where,
                              std::string_view name);

Result<void> check_object(const Json& value, std::string_view where,
                          std::string_view name);
// An object with all required keys, and no others but the optional ones.
Result<void> check_fields(
    const Json& value, std::string_view where, std::string_view name,
    std::initializer_list<std::string_view> required,
    std::initializer_list<std::string_view> optional = {});

}  // namespace tessera
