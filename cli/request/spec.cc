// cli/request/spec.cc: a request as a JSON file, with the same words as the
// flags.
#include "cli/request/spec.h"

#include <algorithm>
#include <variant>

#include "base/fail.h"
#include "base/files.h"
#include "base/json_read.h"
#include "base/nearest.h"
#include "base/text.h"
#include "cli/unsupported.h"

namespace tessera::cli {
namespace {

constexpr std::string_view kWhere = "spec";

// How each field may be written. Ranges that need more than the field itself
// are for the request to judge.
enum class Form {
  number,   // an integer
  text,     // a string
  texts,    // a string, or an array of strings
  pair,     // "AxB" or [A, B]
  numbers,  // "N,N", N, or an array of integers
  counts,   // as numbers, and an array of strings
};

using O = RequestOptions;
using Member =
    std::variant<std::optional<int64_t> O::*, std::optional<std::string> O::*,
                 std::vector<std::string> O::*>;

struct Field {
  std::string_view name;
  Form form;
  Member member;
};

constexpr Field kFields[] = {
    {"mask", Form::texts, &O::masks},
    {"q_len", Form::number, &O::q_len},
    {"kv_len", Form::number, &O::kv_len},
    {"batch", Form::number, &O::batch},
    {"q_offset", Form::numbers, &O::q_offset},
    {"tile", Form::pair, &O::tile},
    {"logical_block", Form::pair, &O::logical_block},
    {"docs", Form::text, &O::docs},
    {"q_docs", Form::text, &O::q_docs},
    {"valid", Form::counts, &O::valid},
    {"prefix", Form::numbers, &O::prefix},
    {"picks", Form::text, &O::picks},
    {"target", Form::text, &O::target},
    {"max_steps", Form::number, &O::max_steps},
    {"max_width", Form::number, &O::max_width},
    {"max_union", Form::number, &O::max_union},
};

std::string_view form_text(Form form) {
  switch (form) {
    case Form::number:
      return "an integer";
    case Form::text:
      return "a string";
    case Form::texts:
      return "a string or an array of strings";
    case Form::pair:
      return "a string such as \"256x256\" or an array of 2 integers";
    case Form::numbers:
      return "an integer, a string or an array of integers";
    case Form::counts:
      return "a string, an array of strings, an integer or an array of "
             "integers";
  }
  return "";
}

bool is_int64(const Json& value) {
  return value.is_number_unsigned()
             ? value.get<uint64_t>() <= uint64_t{INT64_MAX}
             : value.is_number_integer();
}

template <class Predicate>
bool is_array_of(const Json& value, Predicate all) {
  return value.is_array() && !value.empty() &&
         std::all_of(value.begin(), value.end(), all);
}

bool is_string(const Json& value) { return value.is_string(); }

std::string joined(const Json& array, std::string_view separator) {
  std::string out;
  for (const Json& v : array) {
    if (!out.empty()) out += separator;
    out += fmt::to_string(v.get<int64_t>());
  }
  return out;
}

bool fits(const Json& value, Form form) {
  switch (form) {
    case Form::number:
      return is_int64(value);
    case Form::text:
      return value.is_string();
    case Form::texts:
      return value.is_string() || is_array_of(value, is_string);
    case Form::pair:
      return value.is_string() ||
             (value.size() == 2 && is_array_of(value, is_int64));
    case Form::numbers:
      return value.is_string() || is_int64(value) ||
             is_array_of(value, is_int64);
    case Form::counts:
      return fits(value, Form::numbers) || fits(value, Form::texts);
  }
  return false;
}

// What is wrong with a value that does not fit: the array's first element that
// does not belong, or the value itself.
std::string found_in(const Json& value, Form form) {
  if (!value.is_array() || form == Form::number || form == Form::text) {
    return describe(value);
  }
  const bool of_text =
      form == Form::texts ||
      (form == Form::counts && !value.empty() && value[0].is_string());
  for (size_t i = 0; i < value.size(); ++i) {
    const bool good = of_text ? value[i].is_string() : is_int64(value[i]);
    if (!good) return fmt::format("{} at [{}]", describe(value[i]), i);
  }
  return describe(value);
}

// A field in the syntax of its flag; `value` fits `form`.
std::string as_flag(const Json& value, Form form) {
  if (value.is_string()) return value.get<std::string>();
  if (is_int64(value)) return fmt::to_string(value.get<int64_t>());
  return joined(value, form == Form::pair ? "x" : ",");
}

std::vector<std::string> as_flags(const Json& value, Form form) {
  if (is_array_of(value, is_string)) {
    return value.get<std::vector<std::string>>();
  }
  return {as_flag(value, form)};
}

void set(RequestOptions& o, const Field& field, const Json& v) {
  if (const auto* number = std::get_if<0>(&field.member)) {
    o.** number = v.get<int64_t>();
  } else if (const auto* text = std::get_if<1>(&field.member)) {
    o.** text = as_flag(v, field.form);
  } else {
    o.*std::get<2>(field.member) = as_flags(v, field.form);
  }
}

Error unknown_field(const std::string& key) {
  if (const auto reason = refusal(key)) {
    return invalid(kWhere, "{}, found the field {}", *reason, in_quotes(key));
  }
  std::vector<std::string_view> known;
  for (const Field& f : kFields) known.push_back(f.name);
  const std::string near = nearest(key, known);
  return invalid(kWhere, "fields must be known ones, found {}{}",
                 in_quotes(key),
                 near.empty() ? std::string()
                              : fmt::format(" (did you mean '{}'?)", near));
}

}  // namespace

Result<RequestOptions> parse_spec(std::string_view text) {
  if (text.size() > static_cast<size_t>(kMaxSpecBytes)) {
    return over_limit(kWhere, "a spec must be at most {} bytes, found {}",
                      kMaxSpecBytes, text.size());
  }
  auto json = parse_json(text, kWhere);
  if (!json) return json.error();
  if (!json->is_object()) {
    return invalid(kWhere, "a spec must be an object, found {} for it",
                   describe(*json));
  }
  RequestOptions out;
  for (const auto& [key, value] : json->items()) {
    const auto* const field = std::find_if(
        std::begin(kFields), std::end(kFields),
        [&, &name = key](const Field& f) { return f.name == name; });
    if (field == std::end(kFields)) return unknown_field(key);
    if (!fits(value, field->form)) {
      return invalid(kWhere, "{} must be {}, found {} for it", key,
                     form_text(field->form), found_in(value, field->form));
    }
    set(out, *field, value);
  }
  return out;
}

Result<RequestOptions> load_spec(const std::string& path) {
  auto text = read_file(path, kMaxSpecBytes);
  if (!text) return text.error();
  return parse_spec(*text);
}

}  // namespace tessera::cli
