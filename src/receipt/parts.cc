// receipt/parts.cc: what receipts of every kind hold, as JSON.
#include "receipt/parts.h"

#include <cmath>

#include "base/text.h"
#include "receipt/read.h"

namespace tessera::parts {

using Ordered = nlohmann::ordered_json;

Ordered number(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  return value;
}

Ordered text(const std::string& value) {
  return is_utf8(value) ? value : in_quotes(value, value.size());
}

Ordered texts(const std::vector<std::string>& values) {
  Ordered out = Ordered::array();
  for (const std::string& v : values) out.push_back(text(v));
  return out;
}

Ordered file_name(const std::string& name) {
  return name.empty() ? Ordered(nullptr) : text(name);
}

Ordered plugin_json(const std::optional<Receipt::Plugin>& p) {
  if (!p) return nullptr;
  return {{"file", text(p->file)},
          {"api", text(p->api)},
          {"platform", text(p->platform)},
          {"platform_version", text(p->platform_version)},
          {"device", text(p->device)},
          {"number", p->number}};
}

Ordered check_json(const Receipt::Check& c) {
  if (c.kind == "none") return {{"kind", c.kind}, {"rows", 0}};
  return {{"kind", c.kind},
          {"rows", c.rows},
          {"max_error", number(c.max_error)},
          {"max_bound_ratio", number(c.max_bound_ratio)},
          {"passed", c.passed},
          {"worst", c.worst}};
}

void add_digest(Ordered& receipt) {
  receipt["receipt_digest"] = receipt_digest(Json::parse(receipt.dump()));
}

}  // namespace tessera::parts
