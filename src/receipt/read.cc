// receipt/read.cc: reads receipts by their schema.
#include "receipt/read.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/digest.h"
#include "base/fail.h"
#include "base/text.h"

namespace tessera {
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

// The part of JSON schema that ours uses; schema_test.cc sees that it uses no
// more.
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
    if (schema.contains("pattern") && !is_digest(value)) {
      return invalid(kWhere, "{} must be 32 hex digits, found {}", name,
                     describe(value));
    }
    return {};
  }

 private:
  Result<void> any_of(const Json& value, const Json& all,
                      const std::string& name) const {
    // Null, or what comes after it, whose error says more.
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

Result<Json> parse_any(std::string_view text) {
  if (text.size() > static_cast<size_t>(kMaxReceiptBytes)) {
    return over_limit(kWhere, "a receipt must be at most {} bytes, found {}",
                      kMaxReceiptBytes, text.size());
  }
  return parse_json(text, kWhere);
}

Result<Json> checked(Result<Json> json, const Json& schema) {
  if (!json) return json;
  if (auto e = Validator(schema).check(*json, schema, ""); !e) return e.error();
  return json;
}

const Json& run_schema() {
  static const Json schema = Json::parse(receipt_schema());
  return schema;
}

const Json& bridge_schema() {
  static const Json schema = Json::parse(bridge_receipt_schema());
  return schema;
}

// Whose lane it is; "" where the plugin's platform does not fit.
std::string due_family(const std::string& lane, const Json& plugin) {
  const bool compiled = !plugin.is_null();
  const std::string platform =
      compiled ? plugin["platform"].get<std::string>() : "";
  if (lane == "reference") return compiled ? "" : "reference";
  if (lane == "cpu") return compiled ? "" : "native";
  if (lane == "mosaic") return compiled && platform != "tpu" ? "" : "tpu/jax";
  if (!compiled) return "";
  if (lane == "jax_bridge") return "tpu/jax";
  if (platform == "tpu") return "tpu/jax";
  return lane == "cuda" || platform == "cuda" ? "cuda" : "xla";
}

bool near(double a, double b) {
  return std::abs(a - b) <= 1e-9 * std::max({1.0, std::abs(a), std::abs(b)});
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

Result<Json> read_receipt(std::string_view text) {
  return checked(parse_any(text), run_schema());
}

Result<Json> read_any_receipt(std::string_view text) {
  auto json = parse_any(text);
  if (!json) return json;
  const bool bridge = is_bridge_receipt(*json);
  return checked(std::move(json), bridge ? bridge_schema() : run_schema());
}

bool is_bridge_receipt(const Json& receipt) {
  return receipt.is_object() && receipt.contains("operation");
}

std::string receipt_digest(const Json& receipt) {
  Json others = receipt;
  others.erase(kDigest);
  const std::string text = others.dump();  // keys in order, no spaces
  Digest digest;
  digest.add(text.data(), text.size());
  return digest.hex();
}

Result<void> check_digest(const Json& receipt) {
  const std::string due = receipt_digest(receipt);
  if (receipt[kDigest] == due) return {};
  return invalid(kWhere,
                 "receipt_digest must be that of the other fields, {}, found "
                 "{}",
                 due, receipt[kDigest].get<std::string>());
}

namespace {

// What must hold, in words, where it does not.
class Wrongs {
 public:
  void operator()(bool holds, std::string text) {
    if (!holds) found.push_back(std::move(text));
  }
  std::vector<std::string> found;
};

void check_checks(const Json& check, Wrongs& must) {
  const bool checked = check["kind"] != "none";
  must(checked == check.contains("passed"),
       "check must hold its result where there was one");
  if (checked && check.contains("passed") &&
      check.contains("max_bound_ratio")) {
    must(check["passed"] == (check["max_bound_ratio"] <= 1.0),
         "check.passed must follow from check.max_bound_ratio");
  }
}

double programs_found(const Json& r) {
  return r["compiles"].get<double>() + r["cache_hits"]["memory"].get<double>() +
         r["cache_hits"]["disk"].get<double>();
}

std::vector<std::string> bridge_contradictions(const Json& r) {
  Wrongs must;
  must(programs_found(r) == 1,
       fmt::format("compiles and cache hits must come to 1 for a bridge, "
                   "found {}",
                   programs_found(r)));
  const Json& terms = r["key"]["terms"];
  must(terms.contains("artifact") &&
           terms["artifact"] == r["artifact"]["digest"],
       "key.terms.artifact must be artifact.digest");
  must(r["inputs"]["digests"].size() == r["inputs"]["arrays"].size(),
       "inputs.digests must be of every input");
  check_checks(r["check"], must);
  return must.found;
}

}  // namespace

std::vector<std::string> contradictions(const Json& r) {
  if (is_bridge_receipt(r)) return bridge_contradictions(r);
  Wrongs must;
  const Json& lane = r["lane"];
  const bool ran = lane["runtime_mode"] == "executed";
  must(ran != lane["executed"].is_null(),
       "lane.executed must name a lane where one ran, and none else");
  must(ran != r["output"]["digest"].is_null(),
       "output.digest must be there where a lane ran, and nowhere else");
  const std::string chosen = lane["chosen"];
  const std::string executed =
      ran && lane["executed"].is_string() ? lane["executed"] : lane["chosen"];
  must(lane["requested"] == "auto" || lane["requested"] == chosen,
       "lane.chosen must be lane.requested, unless that is auto");
  const bool by_default = lane["source"] == "default";
  must(!by_default || lane["requested"] == "auto",
       "lane.source must be who asked for lane.requested");
  must(lane["source"] != "caller" || lane["requested"] != "auto",
       "lane.source must be default where the caller named no lane");
  const Json& allowed = lane["fallback_allowed"];
  must(executed == chosen ||
           std::find(allowed.begin(), allowed.end(), executed) != allowed.end(),
       "lane.executed must be lane.chosen or one of lane.fallback_allowed");
  must(std::set<Json>(allowed.begin(), allowed.end()).size() == allowed.size(),
       "lane.fallback_allowed must name a lane once");
  must((executed == chosen) == r["fallback"].is_null(),
       "fallback must say why lane.executed is not lane.chosen");
  must(lane["family"] == due_family(executed, r["plugin"]),
       fmt::format("lane.family must be that of {} and its plugin", executed));
  must((executed == "xla") == !r["method"].is_null() || !ran,
       "method must be there for the xla lane alone");
  must((executed == "jax_bridge") == !r["artifact"].is_null() || !ran,
       "artifact must be there for the jax_bridge lane alone");
  const bool native = executed == "cpu" || executed == "reference";
  must(!ran || native == !r["isa"].is_null(),
       "isa must be there for our own lanes alone");
  must(!ran || native == !r["threads"].is_null(),
       "threads must be there for our own lanes alone");
  if (ran) {
    const size_t programs = r["direction"] == "forward" ? 1 : 2;
    const double found = programs_found(r);
    const size_t due = native ? 0 : programs;
    must(r["kernels"].size() == due,
         fmt::format("kernels must be {} of the {} lane", due, executed));
    must(found == static_cast<double>(due),
         fmt::format("compiles and cache hits must come to {} for the {} lane, "
                     "found {}",
                     due, executed, found));
  } else {
    must(r["tiles"]["run"] == 0 && r["tiles"]["skipped"] == 0 &&
             r["pairs"]["run"] == 0,
         "tiles and pairs must be 0 where nothing ran");
    must(r["check"]["kind"] == "none",
         "check.kind must be none where nothing ran");
    must(r["ms"]["total"] == r["ms"]["compile"],
         "ms must be of compiling alone where nothing ran");
  }
  const Json& machine = r["machine"];
  must(machine["loads_plugins"] == true || r["plugin"].is_null(),
       "machine.loads_plugins must be true where a plugin was loaded");
  must(std::set<Json>(machine["isas"].begin(), machine["isas"].end()).size() ==
           machine["isas"].size(),
       "machine.isas must name an ISA once");
  must(ran || r["device"] == machine["cpu"],
       "device must be machine.cpu where nothing ran");
  const Json& ms = r["ms"];
  double total = 0;
  for (const auto& [name, value] : ms.items()) {
    if (name != "total") total += value.get<double>();
  }
  must(near(total, ms["total"]), "ms.total must be the sum of the others");
  const Json& s = r["shape"];
  const double worked =
      ms["forward"].get<double>() + ms["backward"].get<double>();
  const double flop =
      r["pairs"]["legal"].get<double>() *
      (s["head_dim"].get<double>() + s["v_head_dim"].get<double>()) *
      (r["direction"] == "forward" ? 2 : 7);
  must(near(worked > 0 ? flop / worked / 1e6 : 0, r["gflops"]["useful"]),
       "gflops.useful must be that of pairs.legal and ms");
  must(r["direction"] != "forward" || ms["backward"] == 0,
       "ms.backward must be 0 for a forward run");
  check_checks(r["check"], must);
  std::set<std::string> lanes = {chosen};
  for (const auto& [name, reason] : r["choice"]["rejected"].items()) {
    lanes.insert(name);
  }
  must(lanes.size() == 6 && r["choice"]["rejected"].size() == 5,
       "choice.rejected must give every other lane its reason");
  return must.found;
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

Result<void> check_receipt(std::string_view text) {
  auto receipt = read_any_receipt(text);
  if (!receipt) return receipt.error();
  if (auto e = check_digest(*receipt); !e) return e;
  const std::vector<std::string> wrong = contradictions(*receipt);
  if (wrong.empty()) return {};
  return invalid(kWhere, "fields must not contradict each other, found: {}",
                 wrong.front());
}

Result<std::vector<ReceiptDifference>> diff_receipts(std::string_view a,
                                                     std::string_view b) {
  for (const std::string_view text : {a, b}) {
    if (auto e = check_receipt(text); !e) return e.error();
  }
  return differences(*read_any_receipt(a), *read_any_receipt(b));
}

}  // namespace tessera
