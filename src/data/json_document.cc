// data/json_document.cc: one line of JSON as a document.
#include "data/json_document.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "base/json_read.h"
#include "data/chunk_checks.h"

namespace tessera::data {
namespace {

constexpr std::string_view kStructure[] = {
    "structure_ids", "dep_levels", "ast_depth", "sibling_index", "node_type"};
constexpr std::string_view kEdges[] = {"call_edges", "type_edges"};
constexpr std::string_view kOthers[] = {
    "input_ids",   "loss_mask",  "chunk_starts", "chunk_ends",
    "chunk_kinds", "chunk_unit", "token_spans"};

class Line {
 public:
  Line(const Json& object, std::string_view place, Documents& into)
      : object_(object), place_(place), into_(into) {}

  Result<void> read() {
    if (!object_.is_object()) {
      return invalid("data", "a line must be an object, found {} for {}",
                     describe(object_), place_);
    }
    const auto first = static_cast<size_t>(into_.tokens());
    if (!object_.contains("input_ids")) {
      return invalid("data",
                     "a document must have the column input_ids, found none "
                     "for {}",
                     place_);
    }
    if (auto e = numbers("input_ids", 0, INT32_MAX, into_.input_ids); !e) {
      return e;
    }
    tokens_ = into_.input_ids.size() - first;
    if (auto e = token_column("loss_mask", 0, 1, 1, into_.loss_mask, first);
        !e) {
      return e;
    }
    for (size_t s = 0; s < Documents::kStructures; ++s) {
      auto e = token_column(kStructure[s], INT32_MIN, INT32_MAX, 0,
                            into_.structure[s], first);
      if (!e) return e;
    }
    if (auto e = chunks(); !e) return e;
    for (size_t kind = 0; kind < into_.edges.size(); ++kind) {
      if (auto e = edges(kind); !e) return e;
    }
    into_.close_document();
    return {};
  }

 private:
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
      const Json& value = array[i];
      const bool fits = value.is_number_unsigned()
                            ? value.get<uint64_t>() <= uint64_t{INT32_MAX}
                            : value.is_number_integer();
      const int64_t n = fits ? value.get<int64_t>() : most + 1;
      if (n < least || n > most) {
        auto read = read_int(value, "data", called(column, i), least, most);
        return read.error();
      }
      to[first + i] = static_cast<int32_t>(n);
    }
    return {};
  }

  Result<void> numbers(std::string_view column, int64_t least, int64_t most,
                       std::vector<int32_t>& to) const {
    return add(object_.at(std::string(column)), column, least, most, to);
  }

  // A number a token, where the document has the column. `first` is its first
  // token; the documents before it have `absent` if none had the column.
  Result<void> token_column(std::string_view column, int64_t least,
                            int64_t most, int32_t absent,
                            std::vector<int32_t>& to, size_t first) const {
    if (!object_.contains(column)) return {};
    to.resize(first, absent);
    if (auto e = numbers(column, least, most, to); !e) return e;
    return same_length(column, to.size() - first, tokens_, "tokens");
  }

  Result<void> same_length(std::string_view column, size_t found,
                           size_t expected, std::string_view of) const {
    if (found == expected) return {};
    return invalid("data", "{} must be as long as the {}, {}, found {} for {}",
                   column, of, expected, found, place_);
  }

  Result<void> chunks() {
    ChunkColumns chunks;
    const auto read = [&](std::string_view column,
                          std::vector<int32_t>& to) -> Result<void> {
      if (!object_.contains(column)) return {};
      return numbers(column, 0, INT32_MAX, to);
    };
    if (auto e = read("chunk_starts", chunks.starts); !e) return e;
    if (auto e = read("chunk_ends", chunks.ends); !e) return e;
    if (auto e = read("chunk_kinds", chunks.kinds); !e) return e;
    if (object_.contains("token_spans")) {
      chunks.token_spans.emplace();
      if (auto e = pairs("token_spans", *chunks.token_spans); !e) return e;
    }
    if (object_.contains("chunk_unit")) {
      auto unit = read_string(object_.at("chunk_unit"), "data",
                              fmt::format("chunk_unit of {}", place_));
      if (!unit) return unit.error();
      chunks.unit = std::move(*unit);
    }
    return add_chunks(std::move(chunks), static_cast<int64_t>(tokens_), place_,
                      into_);
  }

  Result<void> pairs(std::string_view column, std::vector<int32_t>& to) const {
    const Json& array = object_.at(std::string(column));
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

  Result<void> edges(size_t kind) {
    if (!object_.contains(kEdges[kind])) return {};
    std::vector<int32_t> ends;
    if (auto e = pairs(kEdges[kind], ends); !e) return e;
    return add_edges(ends, kind, kEdges[kind], place_, into_);
  }

  const Json& object_;
  std::string_view place_;
  Documents& into_;
  size_t tokens_ = 0;
};

bool is_column(std::string_view name) {
  const auto among = [&](const auto& list) {
    return std::find(std::begin(list), std::end(list), name) != std::end(list);
  };
  return among(kOthers) || among(kStructure) || among(kEdges);
}

}  // namespace

Result<void> add_json_document(std::string_view line, std::string_view place,
                               Documents& into,
                               std::set<std::string>& ignored) {
  auto object = parse_json(line, "data");
  if (!object) {
    Error error = object.error();
    error.message += fmt::format(" of {}", place);
    return error;
  }
  if (auto e = Line(*object, place, into).read(); !e) return e;
  constexpr size_t kMostNames = 64;  // a stranger's keys may all differ
  for (const auto& [name, unused] : object->items()) {
    if (!is_column(name) && ignored.size() < kMostNames) ignored.insert(name);
  }
  return {};
}

}  // namespace tessera::data
