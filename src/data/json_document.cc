// data/json_document.cc: one line of JSON as a document.
#include "data/json_document.h"

#include <vector>

#include "base/fail.h"
#include "base/json_read.h"

namespace tessera::data {
namespace {

class JsonFields : public DocumentFields {
 public:
  JsonFields(const Json& object, std::string_view place)
      : object_(object), place_(place) {}

  bool has(Field field) const override {
    const auto at = object_.find(name_of(field));
    return at != object_.end() && !at->is_null();
  }

  Result<void> numbers(Field field, int64_t least, int64_t most,
                       std::vector<int32_t>& to) const override {
    return add(value(field), name_of(field), least, most, to);
  }

  Result<void> pairs(Field field, std::vector<int32_t>& to) const override {
    const std::string_view column = name_of(field);
    const Json& array = value(field);
    if (!array.is_array()) {
      return invalid("data", "{} must be an array of pairs, found {} for {}",
                     column, describe(array), place_);
    }
    for (size_t i = 0; i < array.size(); ++i) {
      if (!array[i].is_array() || array[i].size() != 2) {
        return invalid("data", "{} must be an array of pairs, found {} for {}",
                       column, describe(array[i]), called(column, i));
      }
      if (auto e = add(array[i], column, 0, INT32_MAX, to); !e) return e;
    }
    return {};
  }

  Result<std::string> text(Field field) const override {
    return read_string(value(field), "data",
                       fmt::format("{} of {}", name_of(field), place_));
  }

  std::string place() const override { return std::string(place_); }

 private:
  const Json& value(Field field) const {
    return object_.at(std::string(name_of(field)));
  }
  std::string called(std::string_view column, size_t at) const {
    return fmt::format("element {} of {} of {}", at, column, place_);
  }

  // The integers of an array are added to `to`.
  Result<void> add(const Json& array, std::string_view column, int64_t least,
                   int64_t most, std::vector<int32_t>& to) const {
    if (!array.is_array()) {
      return invalid("data", "{} must be an array of integers, found {} for {}",
                     column, describe(array), place_);
    }
    // resize, not reserve, which would move all documents for each.
    const size_t first = to.size();
    to.resize(first + array.size());
    for (size_t i = 0; i < array.size(); ++i) {
      const Json& element = array[i];
      if (element.is_boolean() && least == 0 && most == 1) {
        to[first + i] = element.get<bool>() ? 1 : 0;
        continue;
      }
      const bool fits = element.is_number_unsigned()
                            ? element.get<uint64_t>() <= uint64_t{INT32_MAX}
                            : element.is_number_integer();
      const int64_t n = fits ? element.get<int64_t>() : most + 1;
      if (n < least || n > most) {
        auto read = read_int(element, "data", called(column, i), least, most);
        return read.error();
      }
      to[first + i] = static_cast<int32_t>(n);
    }
    return {};
  }

  const Json& object_;
  std::string_view place_;
};

}  // namespace

Result<FieldSet> add_json_document(std::string_view line,
                                   std::string_view place, Documents& into,
                                   std::set<std::string>& ignored) {
  const auto parsed = parse_json(line, "data");
  if (!parsed) {
    Error error = parsed.error();
    error.message += fmt::format(" of {}", place);
    return error;
  }
  const Json& object = **parsed;
  if (!object.is_object()) {
    return invalid("data", "a line must be an object, found {} for {}",
                   describe(object), place);
  }
  if (auto e = add_document(JsonFields(object, place), into); !e) {
    return e.error();
  }
  FieldSet fields;
  for (const auto& [name, value] : object.items()) {
    if (const auto field = field_called(name)) {
      fields.set(static_cast<size_t>(*field), !value.is_null());
    } else {
      ignore(name, ignored);
    }
  }
  return fields;
}

}  // namespace tessera::data
