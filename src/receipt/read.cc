// receipt/read.cc: reads receipts by their schema.
#include "receipt/read.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/digest.h"
#include "base/fail.h"
#include "base/text.h"
#include "receipt/field_types.h"
#include "receipt/parts.h"

namespace tessera::receipt {
namespace {

constexpr std::string_view kWhere = "receipt";
constexpr const char* kDigest = "receipt_digest";

bool is_digest(const std::string& text) {
  return text.size() == 32 &&
         text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

bool is_no_number(const Json& value) {
  return value == "inf" || value == "-inf" || value == "nan";
}

// Checks the part of JSON schema that our schema uses; read_test.cc tests that
// it uses no more.
class Validator {
 public:
  explicit Validator(const Json& root) : root_(root) {}

  Result<void> check(const Json& value, const Json& schema,
                     const std::string& name) const {
    if (schema.contains("$ref")) {
      const std::string path = schema["$ref"].get<std::string>().substr(1);
      return check(value, root_.at(Json::json_pointer(path)), name);
    }
    if (schema.contains("anyOf")) return any_of(value, schema["anyOf"], name);
    if (schema.contains("const")) {
      if (value == schema["const"]) return {};
      return invalid(kWhere, "{} must be {}, found {}", name,
                     schema["const"].dump(), describe(value));
    }
    if (schema.contains("enum")) return one_of(value, schema["enum"], name);
    const std::string type = schema["type"];
    if (type == "object") return object(value, schema, name);
    if (type == "array") return array(value, schema, name);
    if (type == "integer" || type == "number") {
      return number(value, schema, name);
    }
    const bool fits = (type == "string" && value.is_string()) ||
                      (type == "boolean" && value.is_boolean()) ||
                      (type == "null" && value.is_null());
    if (!fits) {
      return invalid(kWhere, "{} must be a {}, found {}", name, type,
                     describe(value));
    }
    if (schema.contains("minLength") &&
        value.get_ref<const std::string&>().empty()) {
      return invalid(kWhere, "{} must be null or a text, found an empty one",
                     name);
    }
    if (schema.contains("pattern") && !is_digest(value)) {
      return invalid(kWhere, "{} must be 32 hex digits, found {}", name,
                     describe(value));
    }
    return {};
  }

 private:
  Result<void> any_of(const Json& value, const Json& all,
                      const std::string& name) const {
    // all[0] is null; the error of all[1] says more.
    if (value.is_null()) return {};
    return check(value, all[1], name);
  }

  static Result<void> one_of(const Json& value, const Json& all,
                             const std::string& name) {
    if (std::find(all.begin(), all.end(), value) != all.end()) return {};
    return invalid(kWhere, "{} must be one of {}, found {}", name, all.dump(),
                   describe(value));
  }

  static Result<void> number(const Json& value, const Json& schema,
                             const std::string& name) {
    if (is_no_number(value) ||
        (value.is_number_float() && !std::isfinite(value.get<double>()))) {
      return invalid(kWhere, "numbers must be finite, found {} for {}",
                     describe(value), name);
    }
    const bool whole = schema["type"] == "integer";
    if (!value.is_number() || (whole && !value.is_number_integer())) {
      return invalid(kWhere, "{} must be {}, found {}", name,
                     whole ? "an integer" : "a number", describe(value));
    }
    if (whole && value.is_number_unsigned() &&
        value.get<uint64_t>() > uint64_t{INT64_MAX}) {
      return invalid(kWhere, "{} must fit 63 bits, found {}", name,
                     describe(value));
    }
    if (schema.contains("minimum") &&
        value.get<double>() < schema["minimum"].get<double>()) {
      return invalid(kWhere, "{} must be at least {}, found {}", name,
                     schema["minimum"].dump(), describe(value));
    }
    if (schema.contains("maximum") &&
        value.get<double>() > schema["maximum"].get<double>()) {
      return invalid(kWhere, "{} must be at most {}, found {}", name,
                     schema["maximum"].dump(), describe(value));
    }
    return {};
  }

  Result<void> array(const Json& value, const Json& schema,
                     const std::string& name) const {
    if (!value.is_array()) {
      return invalid(kWhere, "{} must be an array, found {}", name,
                     describe(value));
    }
    if (schema.contains("minItems") &&
        value.size() < schema["minItems"].get<size_t>()) {
      return invalid(kWhere, "{} must hold at least {} items, found {}", name,
                     schema["minItems"].dump(), describe(value));
    }
    if (schema.contains("maxItems") &&
        value.size() > schema["maxItems"].get<size_t>()) {
      return invalid(kWhere, "{} must hold at most {} items, found {}", name,
                     schema["maxItems"].dump(), describe(value));
    }
    for (size_t i = 0; i < value.size(); ++i) {
      auto e = check(value[i], schema["items"], fmt::format("{}[{}]", name, i));
      if (!e) return e;
    }
    return {};
  }

  Result<void> object(const Json& value, const Json& schema,
                      const std::string& name) const {
    if (!value.is_object()) {
      return invalid(kWhere, "{} must be an object, found {}",
                     name.empty() ? "a receipt" : name, describe(value));
    }
    const auto path = [&](const std::string& key) {
      return name.empty() ? key : name + "." + key;
    };
    if (schema.contains("required")) {
      for (const Json& key : schema["required"]) {
        if (value.contains(key.get<std::string>())) continue;
        return invalid(kWhere, "every field must be there, found no {}",
                       path(key));
      }
    }
    static const Json none = Json::object();
    const Json& known =
        schema.contains("properties") ? schema["properties"] : none;
    for (const auto& [key, inner] : value.items()) {
      if (known.contains(key)) {
        if (auto e = check(inner, known[key], path(key)); !e) return e;
        continue;
      }
      if (!schema.contains("additionalProperties")) continue;
      const Json& other = schema["additionalProperties"];
      if (other.is_boolean()) {
        return invalid(kWhere, "fields must be known ones, found {}",
                       in_quotes(path(key)));
      }
      if (auto e = check(inner, other, path(key)); !e) return e;
    }
    return {};
  }

  const Json& root_;
};

// Fills the members from JSON that the Validator accepted.
class Reader {
 public:
  Reader(const Json& json, Kind kind) : json_(json), kind_(kind) {}

  template <class T>
  void operator()(std::string_view path, T& member, const FieldRule& rule,
                  std::string_view) const {
    const auto at = pointer_of<Json>(path);
    if (is_of(rule, kind_) && json_.contains(at)) {
      take(json_[at], rule, member);
    }
  }

 private:
  template <class T>
  void take(const Json& json, const FieldRule& rule, T& out) const {
    if constexpr (HasFields<T>) {
      visit_fields(out, Reader(json, kind_));
    } else if constexpr (std::same_as<T, RequestText>) {
      for (const RequestField& field : request_fields()) {
        const auto at = json.find(field.name);
        // The form is valid. An empty array is an error that sets nothing.
        if (at != json.end()) (void)set_field(field, *at, kWhere, out);
      }
    } else if constexpr (std::same_as<T, Tile>) {
      out = {json[0].get<int64_t>(), json[1].get<int64_t>()};
    } else if constexpr (std::same_as<T, std::string>) {
      out = json.is_null() ? "" : rule.json ? json.dump() : json.get<T>();
    } else if constexpr (std::same_as<T, bool>) {
      out = rule.one_of.empty() ? json.get<bool>() : json == rule.one_of[1];
    } else if constexpr (std::is_enum_v<T>) {
      out = value_of<T>(json.get<std::string>());
    } else if constexpr (std::is_arithmetic_v<T>) {
      out = json.get<T>();
    } else if constexpr (IsOptional<T>) {
      if (json.is_null()) return out.reset();
      // Not emplace(): clang 14 denies that a nested struct has a default.
      out = typename T::value_type();
      take(json, rule, *out);
    } else if constexpr (IsMap<T>) {
      out.clear();
      for (const auto& [key, value] : json.items()) {
        take(value, rule, out[key]);
      }
    } else {
      out.clear();
      for (const Json& value : json) take(value, rule, out.emplace_back());
    }
  }

  const Json& json_;
  Kind kind_;
};

// The kind, by a field that only one kind has.
Kind kind_of(const Json& receipt) {
  if (receipt.contains("spec")) return Kind::training;
  return receipt.contains("operation") ? Kind::operation : Kind::plan;
}

void add_leaves(const Json& value, const std::string& name,
                std::map<std::string, std::string>& out) {
  if (value.is_object() && !value.empty()) {
    for (const auto& [key, inner] : value.items()) {
      add_leaves(inner, name.empty() ? key : name + "." + key, out);
    }
  } else {
    out[name] = value.dump();
  }
}

}  // namespace

std::string receipt_digest(const Json& receipt) {
  // Keys are sorted and there are no spaces. A copy of the receipt without the
  // digest is avoided, as it may be large.
  std::string others = "{";
  for (const auto& [key, value] : receipt.items()) {
    if (key == kDigest) continue;
    if (others.size() > 1) others += ',';
    others += Json(key).dump() + ':' + value.dump();
  }
  return digest_of(others + '}');
}

Result<ReceiptClaim> parse_receipt(std::string_view text) {
  if (text.size() > static_cast<size_t>(kMaxReceiptBytes)) {
    return over_limit(kWhere, "a receipt must be at most {} bytes, found {}",
                      kMaxReceiptBytes, text.size());
  }
  const auto parsed = parse_json(text, kWhere);
  if (!parsed) return parsed.error();
  const Json& json = **parsed;
  ReceiptClaim out;
  if (json.is_object()) {
    // The version comes first: another one has other fields.
    if (json.contains("schema") && json["schema"] != kReceiptSchema) {
      return invalid(kWhere,
                     "schema must be {}, found {}: another version wrote it",
                     kReceiptSchema, describe(json["schema"]));
    }
    out.kind = kind_of(json);
  }
  static const Json schema = Json::parse(receipt_schema());
  const Json& kind = schema["$defs"][std::string(to_string(out.kind))];
  if (auto e = Validator(schema).check(json, kind, ""); !e) return e.error();
  visit_fields(static_cast<Receipt&>(out), Reader(json, out.kind));
  out.digest_due = receipt_digest(json);
  for (const ReceiptDifference& d : differences(json, Json(fields_json(out)))) {
    if (d.a.empty() || d.b.empty()) out.misplaced.push_back(d.field);
  }
  return out;
}

void seal(Receipt& r) {
  r.total_ms = r.total_ms_due();
  r.useful_gflops = r.useful_gflops_due();
  r.digest = receipt_digest(Json(fields_json(r)));
}

std::string receipt_json(Receipt receipt, int indent) {
  seal(receipt);
  return fields_json(receipt).dump(indent);
}

double Receipt::useful_flop() const {
  // In doubles: claimed sizes may overflow integers.
  const double dims = static_cast<double>(shape.attention.head_dim) +
                      static_cast<double>(shape.attention.v_head_dim);
  return static_cast<double>(pairs_legal) * dims * (backward ? 7 : 2);
}

double Receipt::useful_gflops_due() const {
  const double ms = forward_ms + backward_ms;
  return ms > 0 ? useful_flop() / ms / 1e6 : 0;
}

double Receipt::total_ms_due() const {
  return route_ms + plan_ms + prepare_ms + compile_ms + transfer_ms +
         forward_ms + backward_ms;
}

Result<void> check_digest(const ReceiptClaim& claim) {
  if (claim.digest == claim.digest_due) return {};
  return invalid(kWhere,
                 "receipt_digest must be that of the other fields, {}, found "
                 "{}",
                 claim.digest_due, claim.digest);
}

std::vector<ReceiptDifference> differences(const Json& a, const Json& b) {
  std::map<std::string, std::string> left, right;
  add_leaves(a, "", left);
  add_leaves(b, "", right);
  std::vector<ReceiptDifference> out;
  for (const auto& [name, value] : left) {
    const auto at = right.find(name);
    const std::string other = at == right.end() ? "" : at->second;
    if (other != value) out.push_back({name, value, other});
  }
  for (const auto& [name, value] : right) {
    if (!left.contains(name)) out.push_back({name, "", value});
  }
  std::ranges::sort(out, {}, &ReceiptDifference::field);
  return out;
}

std::vector<ReceiptDifference> differences(const Receipt& a, const Receipt& b) {
  return differences(Json(fields_json(a)), Json(fields_json(b)));
}

}  // namespace tessera::receipt

namespace tessera {

Result<void> check_receipt(std::string_view text) {
  auto receipt = receipt::parse_receipt(text);
  if (!receipt) return receipt.error();
  if (auto e = receipt::check_digest(*receipt); !e) return e;
  const std::vector<std::string> wrong = receipt::contradictions(*receipt);
  if (wrong.empty()) return {};
  return invalid(receipt::kWhere,
                 "fields must not contradict each other, found: {}",
                 wrong.front());
}

Result<std::vector<ReceiptDifference>> diff_receipts(std::string_view a,
                                                     std::string_view b) {
  for (const std::string_view text : {a, b}) {
    if (auto e = check_receipt(text); !e) return e.error();
  }
  return receipt::differences(*receipt::parse_receipt(a),
                              *receipt::parse_receipt(b));
}

}  // namespace tessera
