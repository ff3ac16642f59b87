// receipt/request_fields.cc: the table, and each form as text and as JSON.
#include "receipt/request_fields.h"

#include <algorithm>
#include <charconv>

#include "base/fail.h"
#include "plan/logical_block.h"
#include "receipt/parts.h"

namespace tessera::receipt {
namespace {

using Ordered = nlohmann::ordered_json;
using Form = FieldForm;
using R = RequestText;

template <int64_t Request::*kNumber>
int64_t& in(Request& r) {
  return r.*kNumber;
}
template <int64_t Ceilings::*kNumber>
int64_t& in(Request& r) {
  return r.ceilings.*kNumber;
}
constexpr RequestNumber up_to(int64_t most, int64_t& (*place)(Request&)) {
  return {most, place};
}

static_assert(kMinBlock == 8 && kMaxBlock == 4096, "as the tile's text says");

constexpr RequestField kFields[] = {
    {"mask", Form::texts, &R::masks, kRequestGroup, "EXPR",
     "Which keys a query may see: causal, window(left, right), chunk(n), "
     "prefix, documents, segments, sink(n), blocks(n), routed(top, block), "
     "tree, same(name), full, joined by ! & | and parentheses. Repeated: one "
     "per group of "
     "heads",
     true},
    {"q_len", Form::number, &R::q_len, kRequestGroup, "N",
     "Queries in a batch row", true, up_to(kMaxTokens, in<&Request::q_len>)},
    {"kv_len", Form::number, &R::kv_len, kRequestGroup, "N",
     "Keys in a batch row [q-len]", true,
     up_to(kMaxTokens, in<&Request::kv_len>)},
    {"batch", Form::number, &R::batch, kRequestGroup, "N", "Batch rows [1]",
     true, up_to(kMaxBatch, in<&Request::batch>)},
    {"tile",
     Form::tile,
     &R::tile,
     kRequestGroup,
     "QxKV",
     "Tile size, 8 to 4096 each [256x256]",
     true,
     {},
     &Request::tile},
    {"logical_block",
     Form::pair,
     &R::logical_block,
     kRequestGroup,
     "QxKV",
     "Report the work of this block size too [the tile]",
     false,
     {},
     &Request::logical_block},
    {"docs", Form::text, &R::docs, kFactsGroup, "SOURCE",
     "Document ids of the keys: FILE | lognormal:mean=2048,seed=0 | "
     "lengths:100,200,... | cu_seqlens:0,100,300,... | cu_seqlens:FILE | "
     "position_ids:FILE. FILE is .npy (int32 or int64, [kv_len] or [batch, "
     "kv_len]) or text: lengths, a blank line between batch rows. "
     "position_ids begin a document wherever one is not the one before it "
     "plus 1. Lengths short of the row leave padding; lognormal has sigma 1, "
     "batch row b draws with seed + b"},
    {"q_docs", Form::text, &R::q_docs, kFactsGroup, "SOURCE",
     "Document ids of the queries [those at their positions]"},
    {"valid", Form::counts, &R::valid, kFactsGroup, "COUNTS",
     "Valid keys of each batch row: tokens:N[,N...] or slots:N[,N...]@BASE, "
     "slots of BASE keys. Both may be given: the smaller holds. One value "
     "serves every batch row"},
    {"prefix", Form::numbers, &R::prefix, kFactsGroup, "N[,N...]",
     "Prefix lengths"},
    {"q_offset", Form::numbers, &R::q_offset, kFactsGroup, "N[,N...]",
     "Key position of query 0 [kv-len - q-len]"},
    {"picks", Form::text, &R::picks, kFactsGroup, "SOURCE",
     "Picks of blocks: FILE | topk_idxs:FILE | clustered:heads=1,kv_heads=1,"
     "dim=64,spread=0.1,seed=0. FILE is .safetensors with an I32 tensor picks "
     "[batch, heads, q_len, k] of block numbers, -1 unused. topk_idxs, for "
     "blocks(n), are [queries, k] or [queries, groups, k] in .npy or in a "
     "tensor of that name. clustered, for routed(...), routes q and k that "
     "are drawn near centroids"},
    {"tree", Form::text, &R::tree, kFactsGroup, "SOURCE",
     "Prefix trees of the tokens: FILE | random:run=64,seed=0. FILE is "
     ".safetensors with I32 tensors enter and leave, [n] or [batch, n], or "
     "JSON lines with `input_ids`, whose tree serves every batch row. Tokens "
     "behind a file's n are padding, and --valid is n where it is absent. "
     "random begins a branch after N tokens on average, batch row b draws "
     "with seed + b"},
    {"same", Form::texts, &R::same, kFactsGroup, "NAME=SOURCE",
     "Ids for same(NAME), a letter a to h: SOURCE as for --docs. Repeated: one "
     "per name. Tokens of a negative id are of no group"},
    {"max_steps", Form::number, &R::max_steps, kContractGroup, "N",
     "Ceiling of packed steps: one contract for every batch under it, an error "
     "for one above",
     false, up_to(kMaxCeiling, in<&Ceilings::max_steps>)},
    {"max_width", Form::number, &R::max_width, kContractGroup, "N",
     "Ceiling of the grid width, the tiles of the widest row", false,
     up_to(kMaxCeiling, in<&Ceilings::max_width>)},
    {"max_union", Form::number, &R::max_union, kContractGroup, "N",
     "Ceiling of the blocks that the queries of a tile row pick together",
     false, up_to(kMaxCeiling, in<&Ceilings::max_union>)},
    {"target", Form::text, &R::target, kContractGroup, "NAME",
     "Check the worklist against the scalar memory of v4, v5e, v5p, v6e or "
     "tpu7x"},
};

std::string_view form_text(Form form) {
  switch (form) {
    case Form::number:
      return "an integer";
    case Form::text:
      return "a string";
    case Form::texts:
      return "a string or an array of strings";
    case Form::tile:
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

bool fits(const Json& value, Form form) {
  switch (form) {
    case Form::number:
      return is_int64(value);
    case Form::text:
      return value.is_string();
    case Form::texts:
      return value.is_string() || is_array_of(value, is_string);
    case Form::tile:
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

// Describes a value that does not fit: the first wrong element of an array, or
// the value itself.
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

// The flag's text for a value that fits `form` and is no array of strings.
std::string flag_text(const Json& value, Form form) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array()) return fmt::to_string(value.get<int64_t>());
  const bool sizes = form == Form::tile || form == Form::pair;
  std::string out;
  for (const Json& v : value) {
    if (!out.empty()) out += sizes ? "x" : ",";
    out += fmt::to_string(v.get<int64_t>());
  }
  return out;
}

std::optional<int64_t> number_of(std::string_view text) {
  int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data(), end, value);
  if (code != std::errc() || stop != end) return {};
  return value;
}

// A text that is not a number stays as it was typed.
Ordered field_json(const std::string& text, Form form) {
  if (form == Form::number) {
    if (const auto n = number_of(text)) return *n;
  } else if (form == Form::tile) {
    const std::string_view whole = text;
    const size_t x = whole.find('x');
    const auto a = number_of(whole.substr(0, x));
    const auto b = x < whole.size() ? number_of(whole.substr(x + 1)) : a;
    if (a && b) return {*a, *b};
  }
  return parts::text(text);
}

}  // namespace

std::span<const RequestField> request_fields() { return kFields; }

std::string RequestField::flag() const {
  std::string out = fmt::format("--{}", name);
  std::replace(out.begin(), out.end(), '_', '-');
  return out;
}

std::vector<std::string> RequestField::texts(const RequestText& request) const {
  if (member.index() == 1) return request.*std::get<1>(member);
  const auto& text = request.*std::get<0>(member);
  return text ? std::vector{*text} : std::vector<std::string>();
}

void RequestField::copy(const RequestText& from, RequestText& to) const {
  std::visit([&](auto at) { to.*at = from.*at; }, member);
}

RequestText request_text(const Request& request) {
  RequestText out;
  for (const Mask& mask : request.masks) out.masks.push_back(to_string(mask));
  Request numbers = request;  // a copy: number.in() needs a mutable Request
  for (const RequestField& f : kFields) {
    std::string text;
    if (f.number.in && f.number.in(numbers) > 0) {
      text = fmt::to_string(f.number.in(numbers));
    } else if (f.size && request.*f.size != Tile{0, 0}) {
      const Tile size = plan::block_or_tile(request.*f.size, request.tile);
      text = fmt::format("{}x{}", size.q, size.kv);
    }
    if (!text.empty()) out.*std::get<0>(f.member) = std::move(text);
  }
  return out;
}

Result<void> set_field(const RequestField& field, const Json& value,
                       std::string_view where, RequestText& out) {
  if (!fits(value, field.form)) {
    return invalid(where, "{} must be {}, found {} for it", field.name,
                   form_text(field.form), found_in(value, field.form));
  }
  if (const auto* one = std::get_if<0>(&field.member)) {
    out.** one = flag_text(value, field.form);
  } else if (is_array_of(value, is_string)) {
    out.*std::get<1>(field.member) = value.get<std::vector<std::string>>();
  } else {
    out.*std::get<1>(field.member) = {flag_text(value, field.form)};
  }
  return {};
}

void take_given(const RequestText& given, RequestText& out) {
  for (const RequestField& f : kFields) {
    if (f.is_given(given) && (!f.always || f.form == Form::texts)) {
      f.copy(given, out);
    }
  }
}

Ordered request_json(const RequestText& request) {
  Ordered out = Ordered::object();
  for (const RequestField& f : kFields) {
    const std::vector<std::string> given = f.texts(request);
    if (given.empty()) continue;
    out[std::string(f.name)] = f.member.index() == 1
                                   ? parts::texts(given)
                                   : field_json(given[0], f.form);
  }
  return out;
}

Ordered request_schema() {
  const Ordered count = {{"$ref", "#/$defs/count"}};
  const Ordered text = {{"type", "string"}};
  Ordered fields = Ordered::object(), required = Ordered::array();
  for (const RequestField& f : kFields) {
    Ordered type = text;
    if (f.form == Form::number) type = count;
    if (f.form == Form::tile) type = {{"type", "array"}, {"items", count}};
    if (f.member.index() == 1) type = {{"type", "array"}, {"items", text}};
    type["description"] = f.help;
    const std::string name(f.name);
    fields[name] = std::move(type);
    if (f.always) required.push_back(name);
  }
  return {{"type", "object"},
          {"properties", std::move(fields)},
          {"required", std::move(required)},
          {"additionalProperties", false}};
}

}  // namespace tessera::receipt
