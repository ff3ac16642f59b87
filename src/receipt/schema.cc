// receipt/schema.cc: the JSON schema of receipts and the table for people, made
// from the list of fields. docs/ has both; a test compares them.
#include <fmt/format.h>

#include <utility>

#include "base/json_read.h"
#include "receipt/field_types.h"
#include "receipt/fields.h"

namespace tessera::receipt {
namespace {

using Ordered = nlohmann::ordered_json;

Ordered reference(std::string_view name) {
  return {{"$ref", fmt::format("#/$defs/{}", name)}};
}

Ordered enum_of(TextList words) {
  Ordered all = Ordered::array();
  for (const std::string_view word : words) all.push_back(word);
  return {{"enum", std::move(all)}};
}

// A missing text is null, never the empty text.
Ordered or_null(Ordered schema) {
  if (schema.value("type", "") == "string") schema["minLength"] = 1;
  return {{"anyOf", {{{"type", "null"}}, std::move(schema)}}};
}

Ordered empty_object() {
  return {{"type", "object"},
          {"properties", Ordered::object()},
          {"required", Ordered::array()},
          {"additionalProperties", false}};
}

// JSON text with each value that fits a line on one line.
std::string lines_of(const Ordered& value, size_t indent = 0) {
  constexpr size_t kLine = 120;
  std::string flat = value.dump();
  if (!value.is_structured() || indent + flat.size() <= kLine) return flat;
  const bool object = value.is_object();
  std::string out(1, object ? '{' : '[');
  for (const auto& [key, inner] : value.items()) {
    if (out.size() > 1) out += ",";
    out += "\n" + std::string(indent + 1, ' ');
    if (object) out += fmt::format("\"{}\": ", key);
    out += lines_of(inner, indent + 1);
  }
  out += "\n" + std::string(indent, ' ');
  return out + (object ? '}' : ']');
}

class SchemaMaker {
 public:
  explicit SchemaMaker(Kind kind) : kind_(kind) {}

  template <class T>
  void operator()(std::string_view path, const T& member, const FieldRule& rule,
                  std::string_view meaning) {
    if (!is_of(rule, kind_)) return;
    Ordered* object = &out;
    for (size_t dot; (dot = path.find('.')) != std::string_view::npos;
         path.remove_prefix(dot + 1)) {
      const std::string part(path.substr(0, dot));
      if (!(*object)["properties"].contains(part)) {
        (*object)["properties"][part] = empty_object();
        (*object)["required"].push_back(part);
      }
      object = &(*object)["properties"][part];
    }
    Ordered schema = schema_of(member, rule);
    if (!meaning.empty()) schema["description"] = meaning;
    (*object)["properties"][std::string(path)] = std::move(schema);
    if (!rule.optional) (*object)["required"].push_back(path);
  }

  Ordered out = empty_object();

 private:
  template <class T>
  Ordered schema_of(const T& member, const FieldRule& rule) const {
    if constexpr (HasFields<T>) {
      SchemaMaker inner(kind_);
      visit_fields(member, inner);
      return std::move(inner.out);
    } else if constexpr (std::same_as<T, RequestText>) {
      return request_schema();
    } else if constexpr (IsOptional<T>) {
      return or_null(schema_of(typename T::value_type(), rule));
    } else if constexpr (IsMap<T>) {
      return map_schema(schema_of(typename T::mapped_type(), rule), rule.keys);
    } else if constexpr (std::same_as<T, std::string>) {
      return rule.or_null ? or_null(text_schema(rule)) : text_schema(rule);
    } else if constexpr (std::same_as<T, Tile>) {
      return {{"type", "array"},
              {"items", reference("count")},
              {"minItems", 2},
              {"maxItems", 2}};
    } else if constexpr (std::is_enum_v<T>) {
      return enum_of(rule.one_of);
    } else if constexpr (std::is_arithmetic_v<T>) {
      if (rule.constant) return {{"const", member}};
      if (!rule.def.empty()) return reference(rule.def);
      if (std::same_as<T, bool>) {
        if (!rule.one_of.empty()) return enum_of(rule.one_of);
        return {{"type", "boolean"}};
      }
      if (std::is_integral_v<T>) return reference("count");
      return {{"type", "number"}};
    } else {
      Ordered list = {{"type", "array"},
                      {"items", schema_of(typename T::value_type(), rule)}};
      if (rule.most > 0) list["maxItems"] = rule.most;
      return list;
    }
  }

  static Ordered map_schema(const Ordered& values, TextList keys) {
    if (keys.empty()) {
      return {{"type", "object"}, {"additionalProperties", values}};
    }
    Ordered out = empty_object();
    out.erase("required");
    for (const std::string_view key : keys) {
      out["properties"][std::string(key)] = values;
    }
    return out;
  }

  static Ordered text_schema(const FieldRule& rule) {
    if (rule.json) return {{"type", "object"}};
    if (!rule.one_of.empty()) return enum_of(rule.one_of);
    if (!rule.def.empty()) return reference(rule.def);
    return {{"type", "string"}};
  }

  Kind kind_;
};

Ordered schema_of_kind(Kind kind, std::string_view description) {
  const Receipt receipt;
  SchemaMaker maker(kind);
  visit_fields(receipt, maker);
  maker.out["description"] = description;
  return std::move(maker.out);
}

// Fields without a meaning join the row before them.
class TableMaker {
 public:
  template <class T>
  void operator()(std::string_view path, const T& member, const FieldRule& rule,
                  std::string_view meaning) {
    const FieldOf of = rule.of == FieldOf::all ? of_ : rule.of;
    add(path, of, meaning);
    const std::string before =
        std::exchange(prefix_, fmt::format("{}{}.", prefix_, path));
    const FieldOf of_before = std::exchange(of_, of);
    add_inner(member);
    prefix_ = before;
    of_ = of_before;
  }

  std::string text() const {
    std::string out =
        "| field | in receipts of | holds |\n| --- | --- | --- |\n";
    for (const Row& row : rows_) {
      constexpr std::string_view kKinds[] = {"",
                                             "plans",
                                             "operations",
                                             "plans, operations",
                                             "training",
                                             "plans, training",
                                             "operations, training",
                                             "all"};
      std::string meaning;
      for (const char c : row.meaning)
        meaning += c == '|' ? "\\|" : std::string(1, c);
      out += fmt::format("| {} | {} | {} |\n", row.names,
                         kKinds[static_cast<size_t>(row.of)], meaning);
    }
    return out;
  }

 private:
  struct Row {
    std::string names;
    FieldOf of;
    std::string meaning;
  };

  void add(std::string_view path, FieldOf of, std::string_view meaning) {
    const std::string name = fmt::format("`{}{}`", prefix_, path);
    if (meaning.empty() && !rows_.empty()) {
      rows_.back().names += ", " + name;
    } else {
      rows_.push_back({name, of, std::string(meaning)});
    }
  }

  template <class T>
  void add_inner(const T& member) {
    if constexpr (HasFields<T>) {
      visit_fields(member, *this);
    } else if constexpr (std::same_as<T, RequestText>) {
      for (const RequestField& f : request_fields()) add(f.name, of_, f.help);
    } else if constexpr (!std::same_as<T, std::string> && !IsMap<T> &&
                         requires { typename T::value_type; }) {
      add_inner(typename T::value_type());
    }
  }

  std::string prefix_;
  FieldOf of_ = FieldOf::all;
  std::vector<Row> rows_;
};

}  // namespace

std::string_view to_string(Kind kind) {
  return kind == Kind::plan        ? "plan"
         : kind == Kind::operation ? "operation"
                                   : "training";
}

}  // namespace tessera::receipt

namespace tessera {

std::string_view receipt_schema() {
  static const std::string text = [] {
    const receipt::Ordered count = {{"type", "integer"}, {"minimum", 0}};
    const receipt::Ordered schema = {
        {"$schema", "https://json-schema.org/draft/2020-12/schema"},
        {"title", "Tessera receipt"},
        {"description",
         "What was asked, what really ran, and its proof (docs/receipt.md)"},
        {"oneOf",
         {receipt::reference("plan"), receipt::reference("operation"),
          receipt::reference("training")}},
        {"$defs",
         {{"plan",
           receipt::schema_of_kind(receipt::Kind::plan,
                                   "Of a plan that ran or was compiled")},
          {"operation",
           receipt::schema_of_kind(receipt::Kind::operation,
                                   "Of an operation that JAX exported")},
          {"training", receipt::schema_of_kind(receipt::Kind::training,
                                               "Of steps of `tessera train`")},
          {"count", count},
          {"number0", {{"type", "number"}, {"minimum", 0}}},
          {"digest", {{"type", "string"}, {"pattern", "^[0-9a-f]{32}$"}}},
          {"threads",
           {{"type", "integer"}, {"minimum", 1}, {"maximum", 1 << 20}}}}}};
    return receipt::lines_of(schema) + "\n";
  }();
  return text;
}

std::string_view receipt_table() {
  static const std::string text = [] {
    const receipt::Receipt receipt;
    receipt::TableMaker maker;
    receipt::visit_fields(receipt, maker);
    return maker.text();
  }();
  return text;
}

}  // namespace tessera
