// data/json_document.cc: parses one line of JSON as a document.
#include "data/json_document.h"

#include <algorithm>
#include <vector>

#include "base/fail.h"
#include "base/json_read.h"
#include "data/plain_line.h"

namespace tessera::data {
namespace {

std::string called(std::string_view column, size_t at, std::string_view place) {
  return fmt::format("element {} of {} of {}", at, column, place);
}

class PlainFields : public DocumentFields {
 public:
  PlainFields(const PlainLine& line, std::string_view place)
      : line_(line), place_(place) {}

  bool has(Field field) const override {
    return line_.known.test(static_cast<size_t>(field));
  }
  Result<void> numbers(Field field, int64_t least, int64_t most,
                       std::vector<int32_t>& to) const override {
    const auto& from = line_.numbers[static_cast<size_t>(field)];
    return add(field, from.size(), least, most, to);
  }
  Result<void> pairs(Field field, std::vector<int32_t>& to) const override {
    return add(field, 2, 0, INT32_MAX, to);
  }
  Result<std::string> text(Field) const override {
    return std::string(line_.chunk_unit);
  }
  std::string place() const override { return std::string(place_); }

 private:
  // Each array has `size` numbers; errors give the index within it.
  Result<void> add(Field field, size_t size, int64_t least, int64_t most,
                   std::vector<int32_t>& to) const {
    const auto& from = line_.numbers[static_cast<size_t>(field)];
    const auto bad = std::find_if(from.begin(), from.end(), [&](int32_t n) {
      return n < least || n > most;
    });
    if (bad == from.end()) {
      to.insert(to.end(), from.begin(), from.end());
      return {};
    }
    const auto at = static_cast<size_t>(bad - from.begin()) % size;
    return read_int(Json(*bad), "data", called(name_of(field), at, place_),
                    least, most)
        .error();
  }

  const PlainLine& line_;
  std::string_view place_;
};

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
                       column, describe(array[i]), called(column, i, place_));
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
  // Appends the integers of an array to `to`.
  Result<void> add(const Json& array, std::string_view column, int64_t least,
                   int64_t most, std::vector<int32_t>& to) const {
    if (!array.is_array()) {
      return invalid("data", "{} must be an array of integers, found {} for {}",
                     column, describe(array), place_);
    }
    // resize() grows geometrically; reserve() would copy everything each time.
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
        auto read =
            read_int(element, "data", called(column, i, place_), least, most);
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
  if (const auto plain = read_plain_line(line)) {
    if (auto e = add_document(PlainFields(*plain, place), into); !e) {
      return e.error();
    }
    for (const std::string_view name : plain->others) ignore(name, ignored);
    return plain->known;
  }
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
  // Only needed here: a plain line has arrays for known fields alone, so it
  // cannot be packed rows.
  const auto has = [&](std::string_view name) { return object.contains(name); };
  if (auto e = refuse_rows(has, place); !e) return e.error();
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
