// base/json_read.cc: reads untrusted JSON strictly.
#include "base/json_read.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/fail.h"
#include "base/text.h"

namespace tessera {
namespace {

// Frees what a value holds, so that Json's own destructor finds it empty and
// does not allocate. The recursion is at most kMaxJsonDepth deep, which Builder
// enforces.
void release(Json& value) noexcept {
  if (auto* const array = value.get_ptr<Json::array_t*>()) {
    for (Json& element : *array) {
      if (element.is_structured()) release(element);
    }
    array->clear();
  } else if (auto* const object = value.get_ptr<Json::object_t*>()) {
    for (auto& [key, element] : *object) release(element);
    object->clear();
  }
}

// Builds the value event by event: the library's own builder neither limits
// depth nor notices a key given twice.
class Builder : public nlohmann::json_sax<Json> {
 public:
  Builder(std::string_view text, std::string_view where)
      : text_(text), where_(where) {}
  // Also frees the value if an allocation fails within the text.
  ~Builder() override { release(root); }

  Json root;
  Error error;

  bool null() override { return put(Json(nullptr)); }
  bool boolean(bool v) override { return put(Json(v)); }
  bool number_integer(int64_t v) override { return put(Json(v)); }
  bool number_unsigned(uint64_t v) override { return put(Json(v)); }
  bool number_float(double v, const std::string&) override {
    return put(Json(v));
  }
  bool string(std::string& v) override { return put(Json(std::move(v))); }
  bool binary(Json::binary_t&) override { return false; }
  bool start_object(size_t) override { return open(Json::object()); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(std::string& v) override {
    if (stack_.back()->contains(v)) {
      error = invalid(where_, "a key must appear once, found it twice for {}",
                      in_quotes(v));
      return false;
    }
    key_ = std::move(v);
    return true;
  }

  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    // `position` counts the bytes read, the offending one included.
    error = not_json(position == 0 ? 0 : position - 1);
    return false;
  }

  Error not_json(size_t position) const {
    const size_t at = std::min(position, text_.size());
    const std::string_view before = text_.substr(0, at);
    const size_t line =
        1 + static_cast<size_t>(std::count(before.begin(), before.end(), '\n'));
    const size_t newline = before.rfind('\n');
    const size_t column =
        newline == std::string_view::npos ? at + 1 : at - newline;
    const std::string found =
        at == text_.size()
            ? "the end of the text"
            : in_quotes(text_.substr(
                  at, std::max<size_t>(1, utf8_length(text_.substr(at)))));
    return invalid(where_,
                   "text must be valid JSON, found {} for line {}, column {}",
                   found, line, column);
  }

 private:
  Json* put(Json&& value, bool) {
    if (stack_.empty()) {
      root = std::move(value);
      return &root;
    }
    Json& top = *stack_.back();
    if (top.is_array()) {
      top.push_back(std::move(value));
      return &top.back();
    }
    Json& slot = top[key_];
    slot = std::move(value);
    return &slot;
  }
  bool put(Json&& value) { return put(std::move(value), true) != nullptr; }
  bool open(Json&& value) {
    if (stack_.size() == static_cast<size_t>(kMaxJsonDepth)) {
      error = over_limit(where_,
                         "JSON must nest at most {} deep, found {} for a value",
                         kMaxJsonDepth, kMaxJsonDepth + 1);
      return false;
    }
    stack_.push_back(put(std::move(value), true));
    return true;
  }
  bool close() {
    stack_.pop_back();
    return true;
  }

  std::string_view text_;
  std::string_view where_;
  std::vector<Json*> stack_;  // containers that are open, outermost first
  std::string key_;
};

}  // namespace

ParsedJson::~ParsedJson() { release(value_); }

Result<ParsedJson> parse_json(std::string_view text, std::string_view where) {
  Builder builder(text, where);
  if (!Json::sax_parse(text.begin(), text.end(), &builder)) {
    return builder.error;
  }
  // The library takes a zero byte for the end of the text, and refuses one in a
  // string.
  if (const size_t zero = text.find('\0'); zero != std::string_view::npos) {
    return builder.not_json(zero);
  }
  return ParsedJson(std::move(builder.root));
}

std::string describe(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::boolean:
      return value.get<bool>() ? "true" : "false";
    case Json::value_t::string:
      return "the string " + in_quotes(value.get_ref<const std::string&>(), 60);
    case Json::value_t::number_integer:
      return fmt::format("the integer {}", value.get<int64_t>());
    case Json::value_t::number_unsigned:
      return fmt::format("the integer {}", value.get<uint64_t>());
    case Json::value_t::number_float:
      return "the float " + value.dump();
    case Json::value_t::array:
      return fmt::format("an array of {}", value.size());
    case Json::value_t::object:
      return "an object";
    default:
      return "a value of no type";
  }
}

Result<int64_t> read_int(const Json& value, std::string_view where,
                         std::string_view name, int64_t least, int64_t most) {
  const bool fits = value.is_number_unsigned()
                        ? value.get<uint64_t>() <= uint64_t{INT64_MAX}
                        : value.is_number_integer();
  if (fits) {
    const auto n = value.get<int64_t>();
    if (n >= least && n <= most) return n;
  }
  return invalid(where, "{} must be an integer of {} to {}, found {} for it",
                 name, least, most, describe(value));
}

Result<double> read_number(const Json& value, std::string_view where,
                           std::string_view name) {
  if (!value.is_number() || !std::isfinite(value.get<double>())) {
    return invalid(where, "{} must be a finite number, found {} for it", name,
                   describe(value));
  }
  return value.get<double>();
}

Result<bool> read_bool(const Json& value, std::string_view where,
                       std::string_view name) {
  if (!value.is_boolean()) {
    return invalid(where, "{} must be true or false, found {} for it", name,
                   describe(value));
  }
  return value.get<bool>();
}

Result<std::string> read_string(const Json& value, std::string_view where,
                                std::string_view name) {
  if (!value.is_string()) {
    return invalid(where, "{} must be a string, found {} for it", name,
                   describe(value));
  }
  return value.get<std::string>();
}

Result<std::string> read_line(const Json& value, std::string_view where,
                              std::string_view name) {
  auto text = read_string(value, where, name);
  if (text && on_a_line(*text) != *text) {
    return invalid(where, "{} must hold no control characters, found {}", name,
                   in_quotes(*text));
  }
  return text;
}

Result<void> check_object(const Json& value, std::string_view where,
                          std::string_view name) {
  if (value.is_object()) return {};
  return invalid(where, "{} must be an object, found {} for it", name,
                 describe(value));
}

Result<void> check_fields(const Json& value, std::string_view where,
                          std::string_view name,
                          std::initializer_list<std::string_view> required,
                          std::initializer_list<std::string_view> optional) {
  if (auto e = check_object(value, where, name); !e) return e;
  for (const std::string_view field : required) {
    if (!value.contains(field)) {
      return invalid(where, "{} must have the field '{}', found none for it",
                     name, field);
    }
  }
  const auto among = [](const auto& list, const std::string& key) {
    return std::find(list.begin(), list.end(), key) != list.end();
  };
  for (const auto& [key, unused] : value.items()) {
    if (!among(required, key) && !among(optional, key)) {
      return invalid(where, "{} must have no other field, found {} for one",
                     name, in_quotes(key));
    }
  }
  return {};
}

}  // namespace tessera
