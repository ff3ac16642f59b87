// receipt/field_types.h: what visitors of the table of fields share: kinds of
// members, texts of enums, paths.
#pragma once

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/dtype_word.h"
#include "receipt/fields.h"

namespace tessera::receipt {

struct AnyVisitor {
  void operator()(auto&&...) const {}
};

// A struct that has rows of its own.
template <class T>
concept HasFields = requires(T& value) {
  visit_fields(value, AnyVisitor());
};

template <class T>
inline constexpr bool IsOptional = false;
template <class T>
inline constexpr bool IsOptional<std::optional<T>> = true;

template <class T>
inline constexpr bool IsMap = false;
template <class T>
inline constexpr bool IsMap<std::map<std::string, T>> = true;

inline bool is_of(const FieldRule& rule, Kind kind) {
  return (static_cast<int>(rule.of) & static_cast<int>(kind)) != 0;
}

template <class E>
std::string word_of(E value) {
  if constexpr (std::same_as<E, Dtype>) {
    return dtype_word(value);
  } else {
    return std::string(to_string(value));
  }
}

// The enum value of a word; the schema has checked that it is one.
template <class E>
E value_of(std::string_view word) {
  constexpr int kMaxWords = 16;
  for (int i = 0; i < kMaxWords; ++i) {
    if (word_of(static_cast<E>(i)) == word) return static_cast<E>(i);
  }
  return {};
}

// The JSON pointer of a path such as "tiles.run".
template <class AnyJson>
typename AnyJson::json_pointer pointer_of(std::string_view path) {
  std::string text = "/" + std::string(path);
  std::replace(text.begin(), text.end(), '.', '/');
  return typename AnyJson::json_pointer(text);
}

}  // namespace tessera::receipt
