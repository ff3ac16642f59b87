// request/spec.cc: a request as a JSON file, its fields named as the flags.
#include "request/spec.h"

#include <algorithm>

#include "base/fail.h"
#include "base/files.h"
#include "base/json_read.h"
#include "base/nearest.h"
#include "base/text.h"
#include "request/unsupported.h"

namespace tessera::request {
namespace {

constexpr std::string_view kWhere = "spec";

Error unknown_field(const std::string& key) {
  if (const auto reason = refusal(key)) {
    return invalid(kWhere, "{}, found the field {}", *reason, in_quotes(key));
  }
  std::vector<std::string_view> known;
  for (const receipt::RequestField& f : receipt::request_fields())
    known.push_back(f.name);
  const std::string near = nearest(key, known);
  return invalid(kWhere, "fields must be known ones, found {}{}",
                 in_quotes(key),
                 near.empty() ? std::string()
                              : fmt::format(" (did you mean '{}'?)", near));
}

}  // namespace

Result<receipt::RequestText> parse_spec(std::string_view text) {
  if (text.size() > static_cast<size_t>(kMaxSpecBytes)) {
    return over_limit(kWhere, "a spec must be at most {} bytes, found {}",
                      kMaxSpecBytes, text.size());
  }
  const auto parsed = parse_json(text, kWhere);
  if (!parsed) return parsed.error();
  const Json& json = **parsed;
  if (auto e = check_object(json, kWhere, "a spec"); !e) return e.error();
  receipt::RequestText out;
  for (const auto& [key, value] : json.items()) {
    const auto fields = receipt::request_fields();
    const auto field =
        std::ranges::find(fields, key, &receipt::RequestField::name);
    if (field == fields.end()) return unknown_field(key);
    if (auto e = receipt::set_field(*field, value, kWhere, out); !e)
      return e.error();
  }
  return out;
}

Result<receipt::RequestText> load_spec(const std::string& path) {
  auto text = read_file(path, kMaxSpecBytes);
  if (!text) return text.error();
  return in_file(parse_spec(*text), path);
}

}  // namespace tessera::request
