// pjrt/differing_terms.cc: flattens JSON to lists of fields and compares the
// lists.
#include "pjrt/differing_terms.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "base/json_read.h"

namespace tessera::pjrt {
namespace {

constexpr size_t kMaxFields = 8;
constexpr size_t kMaxValues = 8;
constexpr size_t kMaxValueBytes = 60;

constexpr std::string_view kAbsent = "none";

bool is_key(const Json& value) {
  if (!value.is_string()) return false;
  const auto& text = value.get_ref<const std::string&>();
  return text.size() == 32 &&
         text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

struct Field {
  std::string value;
  bool key = false;
};
using Fields = std::map<std::string, Field>;  // by path: "plan.q_len"

std::string shown(const Json& value) {
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > kMaxValueBytes)
    text = text.substr(0, kMaxValueBytes) + "...";
  return text;
}

std::string below(const std::string& path, std::string_view name) {
  return path.empty() ? std::string(name) : fmt::format("{}.{}", path, name);
}

// The recursion is bounded: the reader limits the depth of each text, and
// `texts` the levels of texts within texts.
void flatten(const Json& value, const std::string& path, int texts,
             Fields& into) {
  if (value.is_object()) {
    for (const auto& [name, member] : value.items()) {
      flatten(member, below(path, name), texts, into);
    }
    return;
  }
  if (value.is_array() &&
      std::any_of(value.begin(), value.end(),
                  [](const Json& e) { return e.is_structured(); })) {
    for (size_t i = 0; i < value.size(); ++i) {
      flatten(value[i], fmt::format("{}[{}]", path, i), texts, into);
    }
    return;
  }
  if (value.is_string() && texts > 0) {
    const auto& text = value.get_ref<const std::string&>();
    if (text.starts_with('{')) {
      if (const auto inner = parse_json(text, "cache")) {
        return flatten(**inner, path, texts - 1, into);
      }
    }
  }
  into[path] = {shown(value), is_key(value)};
}

Fields fields_of(const std::string& text) {
  Fields fields;
  if (const auto parsed = parse_json(text, "cache")) {
    flatten(**parsed, "", 2, fields);
  } else {
    fields["text"] = {shown(text), false};
  }
  return fields;
}

// The distinct values of a field.
std::vector<std::string> values_of(const std::string& path,
                                   const std::vector<Fields>& all) {
  std::vector<std::string> values;
  for (const Fields& fields : all) {
    const auto at = fields.find(path);
    std::string value(at == fields.end() ? kAbsent : at->second.value);
    if (std::find(values.begin(), values.end(), value) == values.end()) {
      values.push_back(std::move(value));
    }
  }
  return values;
}

std::string name_of(const std::string& path) {
  return path.substr(path.rfind('.') + 1);
}

}  // namespace

std::string differing_terms(std::span<const std::string> texts) {
  std::vector<Fields> all;
  all.reserve(texts.size());
  for (const std::string& text : texts) all.push_back(fields_of(text));
  std::map<std::string, bool> keys;  // by path; whether it is a key in all
  for (const Fields& fields : all) {
    for (const auto& [path, field] : fields) {
      const auto at = keys.emplace(path, true).first;
      at->second = at->second && field.key;
    }
  }
  std::vector<std::string> varied, varied_keys;
  for (const auto& [path, key] : keys) {
    if (values_of(path, all).size() < 2) continue;
    (key ? varied_keys : varied).push_back(path);
  }
  if (varied.empty()) varied = varied_keys;
  if (varied.empty()) return "nothing in their texts";

  std::map<std::string, int> names;
  for (const std::string& path : varied) ++names[name_of(path)];
  std::string out;
  for (size_t i = 0; i < varied.size() && i < kMaxFields; ++i) {
    const std::string& path = varied[i];
    const std::vector<std::string> values = values_of(path, all);
    out += out.empty() ? "" : "; ";
    out += names[name_of(path)] == 1 ? name_of(path) : path;
    // The last value is always shown: it is that of the newest contract.
    const size_t left_out =
        values.size() > kMaxValues ? values.size() - kMaxValues : 0;
    for (size_t v = 0; v < values.size(); ++v) {
      if (v + 1 == kMaxValues && left_out > 0) {
        out += fmt::format(", {} more", left_out);
        v = values.size() - 1;
      }
      out += (v == 0 ? " " : ", ") + values[v];
    }
  }
  if (varied.size() > kMaxFields) {
    out += fmt::format("; {} more", varied.size() - kMaxFields);
  }
  return out;
}

}  // namespace tessera::pjrt
