// model/config.cc: the sizes and settings of a model: JSON and rules.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/fail.h"
#include "base/json_read.h"
#include "base/shape.h"
#include "base/text.h"
#include "model/columns.h"
#include "model/routes.h"
#include "tessera/plan.h"
#include "tessera/train.h"

namespace tessera {
namespace {

constexpr std::string_view kWhere = "model";
constexpr std::string_view kNormKinds[] = {"rms", "layer"};
constexpr std::string_view kMlpKinds[] = {"swiglu", "geglu", "gelu"};
constexpr int64_t kMaxIds = 1 << 24;  // ids of a table
constexpr double kMaxNumbers = std::numeric_limits<int32_t>::max();

// Reading, writing and checking share this table.
struct IntField {
  const char* name;
  int64_t ModelConfig::*at;
  int64_t least, most;
};
constexpr IntField kInts[] = {
    {"vocab", &ModelConfig::vocab, 2, kMaxIds},
    {"layers", &ModelConfig::layers, 1, 1024},
    {"width", &ModelConfig::width, 1, 1 << 20},
    {"heads", &ModelConfig::heads, 1, 1024},
    {"kv_heads", &ModelConfig::kv_heads, 1, 1024},
    {"head_dim", &ModelConfig::head_dim, 8, 256},
    {"mlp_width", &ModelConfig::mlp_width, 1, 1 << 20},
};
// Programs hold these as float32; values out of range would be 0 or infinite.
constexpr double kMinNumber = 1e-30, kMaxNumber = 1e30;
struct NumberField {
  const char* name;
  double ModelConfig::*at;
  double least;  // 0: may also be 0, apart from kMinNumber and up
};
constexpr NumberField kNumbers[] = {
    {"embedding_scale", &ModelConfig::embedding_scale, kMinNumber},
    {"norm_eps", &ModelConfig::norm_eps, kMinNumber},
    {"rope_theta", &ModelConfig::rope_theta, 1},
    {"rope_factor", &ModelConfig::rope_factor, 1},
    {"rope_low", &ModelConfig::rope_low, kMinNumber},
    {"rope_high", &ModelConfig::rope_high, kMinNumber},
    {"rope_tokens", &ModelConfig::rope_tokens, 1},
    {"softcap", &ModelConfig::softcap, 0},
    {"final_softcap", &ModelConfig::final_softcap, 0},
    {"score_scale", &ModelConfig::score_scale, 0},
};
struct FlagField {
  const char* name;
  bool ModelConfig::*at;
};
constexpr FlagField kFlags[] = {
    {"fused_mlp", &ModelConfig::fused_mlp},
    {"tied_head", &ModelConfig::tied_head},
    {"post_norms", &ModelConfig::post_norms},
};

template <class Kind, size_t n>
Result<Kind> parse_kind(std::string_view text, const char* name,
                        const std::string_view (&kinds)[n]) {
  for (size_t i = 0; i < n; ++i) {
    if (kinds[i] == text) return static_cast<Kind>(i);
  }
  return invalid(kWhere, "{} must be one of {}, found {}", name,
                 fmt::join(kinds, ", "), in_quotes(text));
}

Result<void> read_windows(const Json& value, ModelConfig& m) {
  if (!value.is_array() || value.size() > 1024) {
    return invalid("model.windows",
                   "windows must be a list of at most 1024, found {}",
                   describe(value));
  }
  m.windows.clear();
  for (const Json& each : value) {
    const std::string name = fmt::format("windows[{}]", m.windows.size());
    auto window = read_int(each, "model.windows", name, 0, kMaxTokens);
    if (!window) return window.error();
    m.windows.push_back(*window);
  }
  return {};
}

Result<void> read_columns(const Json& value, ModelConfig& m) {
  if (auto e = check_object(value, "model.columns", "columns"); !e) return e;
  m.columns.clear();
  for (const auto& [name, each] : value.items()) {
    auto size = read_int(each, "model.columns", "columns." + name, 0, kMaxIds);
    if (!size) return size.error();
    m.columns[name] = *size;
  }
  return {};
}

Result<void> read_field(const std::string& name, const Json& value,
                        ModelConfig& m) {
  for (const IntField& f : kInts) {
    if (name != f.name) continue;
    auto read = read_int(value, kWhere, name, f.least, f.most);
    if (!read) return read.error();
    m.*f.at = *read;
    return {};
  }
  for (const NumberField& f : kNumbers) {
    if (name != f.name) continue;
    auto read = read_number(value, kWhere, name);
    if (!read) return read.error();
    m.*f.at = *read;
    return {};
  }
  for (const FlagField& f : kFlags) {
    if (name != f.name) continue;
    auto read = read_bool(value, kWhere, name);
    if (!read) return read.error();
    m.*f.at = *read;
    return {};
  }
  if (name == "windows") return read_windows(value, m);
  if (name == "columns") return read_columns(value, m);
  if (name == "routes") {
    auto routes = model::read_routes(value);
    if (!routes) return routes.error();
    m.routes = std::move(*routes);
    return {};
  }
  if (name != "norm" && name != "mlp") {
    return invalid(kWhere, "a model has no field of that name, found {}",
                   in_quotes(name));
  }
  auto text = read_string(value, kWhere, name);
  if (!text) return text.error();
  if (name == "norm") {
    auto kind = parse_kind<NormKind>(*text, "norm", kNormKinds);
    if (!kind) return kind.error();
    m.norm = *kind;
    return {};
  }
  auto kind = parse_kind<MlpKind>(*text, "mlp", kMlpKinds);
  if (!kind) return kind.error();
  m.mlp = *kind;
  return {};
}

}  // namespace

std::optional<RowColumn> model::find_column(std::string_view name) {
  const auto all = row_columns();
  for (size_t i = 0; i < all.size(); ++i) {
    const RowColumnSpec& c = all[i];
    if (c.name == name && c.unit == RowUnit::token && !c.required) {
      return static_cast<RowColumn>(i);
    }
  }
  return std::nullopt;
}

int64_t ModelParameter::size() const { return elements_of(shape); }

std::string_view to_string(NormKind kind) {
  return kNormKinds[static_cast<size_t>(kind)];
}
std::string_view to_string(MlpKind kind) {
  return kMlpKinds[static_cast<size_t>(kind)];
}

Result<ModelConfig> parse_model_config(std::string_view text) {
  const auto parsed = parse_json(text, kWhere);
  if (!parsed) return parsed.error();
  const Json& json = **parsed;
  if (auto e = check_object(json, kWhere, "a model"); !e) return e.error();
  ModelConfig out;
  for (const auto& [name, value] : json.items()) {
    if (auto e = read_field(name, value, out); !e) return e.error();
  }
  if (auto e = check_model(out); !e) return e.error();
  return out;
}

std::string to_json(const ModelConfig& m) {
  Json out;
  for (const IntField& f : kInts) out[f.name] = m.*f.at;
  for (const NumberField& f : kNumbers) out[f.name] = m.*f.at;
  for (const FlagField& f : kFlags) out[f.name] = m.*f.at;
  out["norm"] = to_string(m.norm);
  out["mlp"] = to_string(m.mlp);
  out["windows"] = m.windows;
  out["columns"] = m.columns;
  out["routes"] = model::to_json(m.routes);
  return out.dump();
}

Result<void> check_model(const ModelConfig& m) {
  for (const IntField& f : kInts) {
    if (m.*f.at < f.least || m.*f.at > f.most) {
      return invalid(kWhere, "{} must be {} to {}, found {}", f.name, f.least,
                     f.most, m.*f.at);
    }
  }
  for (const NumberField& f : kNumbers) {
    const double value = m.*f.at, least = std::max(f.least, kMinNumber);
    if (value == 0 && f.least == 0) continue;
    if (!(value >= least && value <= kMaxNumber)) {
      return invalid(kWhere, "{} must be {}{} to {}, found {}", f.name,
                     f.least == 0 ? "0 or " : "", least, kMaxNumber, value);
    }
  }
  if (m.heads % m.kv_heads != 0) {
    return invalid(kWhere, "kv_heads must divide heads, found {} for {}",
                   m.kv_heads, m.heads);
  }
  if (m.head_dim % 8 != 0) {
    return invalid(kWhere, "head_dim must be a multiple of 8, found {}",
                   m.head_dim);
  }
  if (m.rope_factor > 1 && !(m.rope_low < m.rope_high)) {
    return invalid(kWhere, "rope_low must be below rope_high, found {} for {}",
                   m.rope_low, m.rope_high);
  }
  for (const int64_t window : m.windows) {
    if (window < 0 || window > kMaxTokens) {
      return invalid(kWhere, "a window must be 0 to {}, found {}", kMaxTokens,
                     window);
    }
  }
  if (auto e = model::check_routes(m.routes); !e) return e;
  for (const auto& [name, size] : m.columns) {
    if (!model::find_column(name)) {
      return invalid(kWhere,
                     "columns must be of a row's structure, a number a token, "
                     "found {}",
                     in_quotes(name));
    }
    if (size < 2 || size > kMaxIds) {
      return invalid(kWhere, "a column must have 2 to {} ids, found {} for {}",
                     kMaxIds, size, name);
    }
  }
  // Programs index arrays in 32 bits.
  const auto at_most = [&](const char* what, double a, double b) {
    return a * b <= kMaxNumbers
               ? Result<void>()
               : over_limit(kWhere,
                            "{} must have at most {:.0f} numbers, "
                            "found {:.0f}",
                            what, kMaxNumbers, a * b);
  };
  const auto real = [](int64_t n) { return static_cast<double>(n); };
  if (auto e = at_most("the embedding", real(m.vocab), real(m.width)); !e) {
    return e;
  }
  if (auto e = at_most("linear_fc1", 2 * real(m.mlp_width), real(m.width));
      !e) {
    return e;
  }
  for (const auto& [name, size] : m.columns) {
    if (auto e = at_most(name.c_str(), real(size), real(m.width)); !e) return e;
  }
  return at_most("linear_qkv",
                 real(m.heads + 2 * m.kv_heads) * real(m.head_dim),
                 real(m.width));
}

}  // namespace tessera
