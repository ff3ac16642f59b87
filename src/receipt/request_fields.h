// receipt/request_fields.h: the fields of a request, listed once: from this
// table come the flags, spec files, the numbers of a request, the request of a
// receipt and its schema. A new field is a member and its row
// (request_fields.cc).
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json_read.h"
#include "tessera/plan.h"

namespace tessera::receipt {

// A request as it was typed, not parsed yet: each field, even a number, is text
// in the syntax of its flag.
struct RequestText {
  std::vector<std::string> masks;  // one, or one per group of heads
  std::vector<std::string> valid;  // each entry one --valid
  std::vector<std::string> same;   // each entry one --same
  std::optional<std::string> q_len, kv_len, batch, tile, logical_block, docs,
      q_docs, prefix, q_offset, picks, tree, max_steps, max_width, max_union,
      target;

  bool operator==(const RequestText&) const = default;
};

// The JSON forms of a field: the first is what a receipt writes, the others a
// spec may use too.
enum class FieldForm : uint8_t {
  number,   // an integer
  text,     // a string
  texts,    // an array of strings; or a string
  tile,     // [A, B]; or "AxB"
  pair,     // "AxB"; or [A, B]
  numbers,  // "N,N"; or N, or an array of integers
  counts,   // an array of strings; or as numbers, or a string
};

// The number in a Request that the field sets, from 1 to `most`.
struct RequestNumber {
  int64_t most = 0;
  int64_t& (*in)(Request& request) = nullptr;
};
// The Tile in a Request that the field sets.
using RequestSize = Tile Request::*;

inline constexpr const char* kRequestGroup = "The request";
inline constexpr const char* kFactsGroup = "The facts of a batch";
inline constexpr const char* kContractGroup = "The contract";

struct RequestField {
  std::string_view name;  // "q_len"; its flag is --q-len
  FieldForm form;
  std::variant<std::optional<std::string> RequestText::*,
               std::vector<std::string> RequestText::*>
      member;
  const char* group;  // of the help
  const char* type;   // what the help calls its value
  const char* help;
  bool always = false;  // in every receipt, with its default if it was open
  // If both are null, src/request/ parses the field.
  RequestNumber number = {};
  RequestSize size = nullptr;

  std::string flag() const;  // "--q-len"
  std::vector<std::string> texts(const RequestText& request) const;
  bool is_given(const RequestText& request) const {
    return !texts(request).empty();
  }
  void copy(const RequestText& from, RequestText& to) const;
};
std::span<const RequestField> request_fields();

// The fields of a Request; it does not hold facts.
RequestText request_text(const Request& request);

// Sets the field from a value in any form that a spec may have; `where` names
// the reader in errors.
Result<void> set_field(const RequestField& field, const Json& value,
                       std::string_view where, RequestText& out);

// Replaces fields of `out` by the given ones, except those that every receipt
// has: they keep their parsed value. Masks are taken as they were written.
void take_given(const RequestText& given, RequestText& out);

// The given fields as a spec with the same meaning.
nlohmann::ordered_json request_json(const RequestText& request);
// The schema of what request_json() writes.
nlohmann::ordered_json request_schema();

}  // namespace tessera::receipt
