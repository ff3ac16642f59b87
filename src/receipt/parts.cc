// receipt/parts.cc: writes what the table of fields lists.
#include "receipt/parts.h"

#include <cmath>

#include "base/text.h"
#include "receipt/field_types.h"
#include "receipt/fields.h"

namespace tessera::receipt {

using Ordered = nlohmann::ordered_json;

namespace parts {

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

}  // namespace parts

namespace {

class Writer {
 public:
  // Fields that repeat less than `least` are left out.
  explicit Writer(Kind kind, Repeats least = Repeats::never)
      : kind_(kind), least_(least) {}

  template <class T>
  void operator()(std::string_view path, const T& value, const FieldRule& rule,
                  std::string_view) {
    if (!rule.present || !is_of(rule, kind_) || rule.repeats > least_) {
      return;
    }
    out[pointer_of<Ordered>(path)] = json_of(value, rule);
  }

  Ordered out = Ordered::object();

 private:
  template <class T>
  Ordered json_of(const T& value, const FieldRule& rule) const {
    if constexpr (HasFields<T>) {
      Writer inner(kind_);
      visit_fields(value, inner);
      return std::move(inner.out);
    } else if constexpr (std::same_as<T, RequestText>) {
      return request_json(value);
    } else if constexpr (std::same_as<T, Tile>) {
      return Ordered::array({value.q, value.kv});
    } else if constexpr (std::same_as<T, std::string>) {
      if (rule.or_null && value.empty()) return nullptr;
      return rule.json ? Ordered::parse(value) : parts::text(value);
    } else if constexpr (std::same_as<T, bool>) {
      return rule.one_of.empty() ? Ordered(value) : Ordered(rule.one_of[value]);
    } else if constexpr (std::is_enum_v<T>) {
      return word_of(value);
    } else if constexpr (std::is_floating_point_v<T>) {
      return parts::number(value);
    } else if constexpr (std::is_integral_v<T>) {
      return value;
    } else if constexpr (IsOptional<T>) {
      return value ? json_of(*value, rule) : Ordered(nullptr);
    } else if constexpr (IsMap<T>) {
      Ordered all = Ordered::object();
      for (const auto& [key, v] : value) all[key] = json_of(v, rule);
      return all;
    } else {
      Ordered all = Ordered::array();
      for (const auto& v : value) all.push_back(json_of(v, rule));
      return all;
    }
  }

  Kind kind_;
  Repeats least_;
};

template <class T>
Ordered written(const T& value, Writer writer = Writer(Kind::plan)) {
  visit_fields(value, writer);
  return std::move(writer.out);
}

}  // namespace

std::vector<Receipt::Phase> Receipt::Routing::all_phases() {
  std::vector<Phase> out;
  for (const RoutePhase& p : route_phases()) {
    out.push_back(
        {std::string(p.name), std::string(p.stages), p.differentiable});
  }
  return out;
}

Ordered fields_json(const Receipt& receipt) {
  return written(receipt, Writer(receipt.kind));
}

Ordered repeatable_json(const Receipt& receipt) {
  return written(
      receipt, Writer(receipt.kind, receipt.ran() ? Repeats::always
                                                  : Repeats::if_compiled_only));
}

Ordered fields_json(const GateRow& row) { return written(row); }

Ordered fields_json(const RouteSettings& settings) { return written(settings); }

Ordered route_phases_json() {
  Ordered out = Ordered::array();
  for (const Receipt::Phase& phase : Receipt::Routing::all_phases()) {
    out.push_back(written(phase));
  }
  return out;
}

}  // namespace tessera::receipt
