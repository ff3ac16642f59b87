// data/arrow_type.cc: reads the type of a column from its Arrow schema.
#include "data/arrow_type.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/fail.h"
#include "base/text.h"

namespace tessera::data {
namespace {

constexpr int kMaxDepth = 8;  // of nested lists and dictionaries

// The type of a format string, without nested types.
ArrowType plain_type(std::string_view format) {
  ArrowType type;
  const auto set = [&](ArrowKind kind, int64_t bytes, bool is_signed) {
    type.kind = kind;
    type.bytes = bytes;
    type.is_signed = is_signed;
  };
  if (format == "n") set(ArrowKind::nulls, 0, false);
  if (format == "b") set(ArrowKind::boolean, 0, false);
  if (format == "c") set(ArrowKind::integer, 1, true);
  if (format == "C") set(ArrowKind::integer, 1, false);
  if (format == "s") set(ArrowKind::integer, 2, true);
  if (format == "S") set(ArrowKind::integer, 2, false);
  if (format == "i") set(ArrowKind::integer, 4, true);
  if (format == "I") set(ArrowKind::integer, 4, false);
  if (format == "l") set(ArrowKind::integer, 8, true);
  if (format == "L") set(ArrowKind::integer, 8, false);
  if (format == "+l") set(ArrowKind::list, 4, true);
  if (format == "+L") set(ArrowKind::list, 8, true);
  if (format == "u") set(ArrowKind::text, 4, true);
  if (format == "U") set(ArrowKind::text, 8, true);
  if (format == "vu") set(ArrowKind::text_view, 0, false);
  if (format.starts_with("+w:")) {
    const char* const end = format.data() + format.size();
    int32_t size = -1;
    const auto [at, error] = std::from_chars(format.data() + 3, end, size);
    if (error == std::errc() && at == end && size >= 0) {
      set(ArrowKind::fixed_list, 0, false);
      type.size = size;
    }
  }
  return type;
}

ArrowType read_type(const ArrowSchema* schema, int depth) {
  ArrowType type;
  if (schema == nullptr || schema->format == nullptr || depth == 0) return type;
  const std::string_view format = schema->format;
  type = plain_type(format);
  type.words = in_quotes(format, 40);
  const bool is_list =
      type.kind == ArrowKind::list || type.kind == ArrowKind::fixed_list;
  if (schema->n_children != (is_list ? 1 : 0) ||
      (is_list && schema->children == nullptr)) {
    type.kind = ArrowKind::other;
    return type;
  }
  if (is_list) {
    type.item =
        std::make_unique<ArrowType>(read_type(schema->children[0], depth - 1));
    type.words += " of " + type.item->words;
  }
  if (schema->dictionary != nullptr) {
    type.dictionary =
        std::make_unique<ArrowType>(read_type(schema->dictionary, depth - 1));
    type.words += " into " + type.dictionary->words;
    if (type.kind != ArrowKind::integer) type.kind = ArrowKind::other;
  }
  return type;
}

bool is_integers(const ArrowType& type, bool or_bools) {
  const ArrowKind kind = type.values().kind;
  return kind == ArrowKind::integer || kind == ArrowKind::nulls ||
         (or_bools && kind == ArrowKind::boolean);
}

// Whether the type is `depth` nested lists of integers.
bool is_lists(const ArrowType& type, int depth, bool or_bools) {
  if (depth == 0) return is_integers(type, or_bools);
  const ArrowType& values = type.values();
  if (values.kind == ArrowKind::nulls) return true;
  if (!values.item) return false;
  return is_lists(*values.item, depth - 1, or_bools);
}

// Whether all types within are known, dictionaries are indexed by integers, and
// no list has size 0. Lists of size 0 take no bytes, so an untrusted array may
// claim any number of them.
bool is_known(const ArrowType& type) {
  if (type.kind == ArrowKind::other) return false;
  if (type.kind == ArrowKind::fixed_list && type.size == 0) return false;
  if (type.item && !is_known(*type.item)) return false;
  return !type.dictionary || is_known(*type.dictionary);
}

}  // namespace

bool has_column(const ArrowSchema& schema, std::string_view name) {
  return std::any_of(schema.children, schema.children + schema.n_children,
                     [&](const ArrowSchema* child) {
                       return child != nullptr && child->name != nullptr &&
                              child->name == name;
                     });
}

ArrowType arrow_type_of(const ArrowSchema* schema) {
  return read_type(schema, kMaxDepth);
}

Result<ArrowType> read_arrow_type(const ArrowSchema& schema, Field field,
                                  std::string_view name) {
  ArrowType type = arrow_type_of(&schema);
  const auto unless = [&](bool good,
                          std::string_view rule) -> Result<ArrowType> {
    if (good) return std::move(type);
    return invalid(
        "data", "column {} must hold {}, found Arrow's format {} for {}",
        name_of(field), rule, type.words.empty() ? "''" : type.words, name);
  };
  const bool known = is_known(type);
  switch (field) {
    case Field::chunk_unit: {
      const ArrowKind kind = type.values().kind;
      return unless(
          known && (kind == ArrowKind::text || kind == ArrowKind::text_view ||
                    kind == ArrowKind::nulls),
          "texts");
    }
    case Field::token_spans:
    case Field::call_edges:
    case Field::type_edges:
      return unless(known && is_lists(type, 2, false), "lists of pairs");
    case Field::loss_mask:
      return unless(known && is_lists(type, 1, true), "lists of integers");
    default:
      return unless(known && is_lists(type, 1, false), "lists of integers");
  }
}

}  // namespace tessera::data
