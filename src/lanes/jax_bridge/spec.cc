// lanes/jax_bridge/spec.cc: parses an artifact's file of shapes, as untrusted.
#include <fmt/ranges.h>

#include <set>

#include "base/fail.h"
#include "base/json_read.h"
#include "base/safetensors.h"
#include "base/shape.h"
#include "base/text.h"
#include "lanes/jax_bridge/attention.h"
#include "lanes/jax_bridge/roles.h"
#include "lanes/jax_bridge/splash.h"
#include "tessera/bridge.h"

namespace tessera {
namespace {

constexpr std::string_view kWhere = "bridge";
constexpr std::string_view kFormat = "tessera bridge";
constexpr int64_t kSpecVersion = 1;
// The calling conventions of JAX whose programs take the index of the platform
// first if there are several platforms, and then the inputs that were kept.
constexpr int64_t kMinConvention = 9;
constexpr int64_t kMaxConvention = 10;

constexpr size_t kMaxArrays = 4096;
constexpr size_t kMaxWord = 256;

// Reads a string of 1 to kMaxWord bytes.
Result<std::string> read_word(const Json& value, std::string_view name) {
  auto word = read_string(value, kWhere, name);
  if (word && (word->empty() || word->size() > kMaxWord)) {
    return invalid(kWhere, "{} must have 1 to {} bytes, found {}", name,
                   kMaxWord, word->size());
  }
  return word;
}

Result<void> check_list(const Json& value, std::string_view name, size_t most) {
  if (value.is_array() && value.size() <= most) return {};
  return invalid(kWhere, "{} must be an array of at most {}, found {} for it",
                 name, most, describe(value));
}

Result<std::pair<int64_t, int64_t>> read_range(const Json& value,
                                               const std::string& name,
                                               Dtype dtype) {
  int64_t least = 0;
  int64_t most = 0;
  switch (dtype) {
    case Dtype::i8:
      least = INT8_MIN, most = INT8_MAX;
      break;
    case Dtype::i16:
      least = INT16_MIN, most = INT16_MAX;
      break;
    case Dtype::i32:
      least = INT32_MIN, most = INT32_MAX;
      break;
    case Dtype::i64:
      least = INT64_MIN, most = INT64_MAX;
      break;
    case Dtype::u8:
      most = UINT8_MAX;
      break;
    default:
      return invalid(kWhere, "a range must be of integers, found {} for {}",
                     to_string(dtype), name);
  }
  if (!value.is_array() || value.size() != 2) {
    return invalid(kWhere, "{} must be an array of 2, found {} for it", name,
                   describe(value));
  }
  auto first = read_int(value[0], kWhere, "the first of " + name, least, most);
  if (!first) return first.error();
  auto last = read_int(value[1], kWhere, "the last of " + name, *first, most);
  if (!last) return last.error();
  return std::pair(*first, *last);
}

Result<BridgeArray> read_array(const Json& value, const std::string& what) {
  if (auto ok = check_fields(value, kWhere, what, {"name", "dtype", "shape"},
                             {"range"});
      !ok) {
    return ok.error();
  }
  BridgeArray out;
  auto name = read_word(value.at("name"), what + ".name");
  if (!name) return name.error();
  out.name = std::move(*name);
  auto dtype = read_string(value.at("dtype"), kWhere, what + ".dtype");
  if (!dtype) return dtype.error();
  const auto known = find_dtype(*dtype);
  if (!known) {
    return invalid(kWhere,
                   "{}.dtype must be BOOL, I8, I16, I32, I64, U8, F16, BF16, "
                   "F32 or F64, found {}",
                   what, in_quotes(*dtype));
  }
  out.dtype = *known;
  const Json& shape = value.at("shape");
  if (auto ok = check_list(shape, what + ".shape", kMaxDimensions); !ok) {
    return ok.error();
  }
  for (const Json& n : shape) {
    auto size =
        read_int(n, kWhere, "each size of " + what + ".shape", 0, INT64_MAX);
    if (!size) return size.error();
    out.shape.push_back(*size);
  }
  const auto count = element_count(out.shape);
  int64_t bytes = 0;
  if (!count || __builtin_mul_overflow(*count, byte_width(*known), &bytes)) {
    return invalid(kWhere, "{} must have at most 2^63-1 bytes, found [{}]",
                   what, fmt::join(out.shape, ", "));
  }
  if (!value.contains("range")) return out;
  auto range = read_range(value.at("range"), what + ".range", out.dtype);
  if (!range) return range.error();
  out.range = *range;
  return out;
}

// Names must differ over inputs and outputs, since files hold both.
Result<std::vector<BridgeArray>> read_arrays(const Json& value,
                                             const std::string& name,
                                             std::set<std::string>& names) {
  if (auto ok = check_list(value, name, kMaxArrays); !ok) return ok.error();
  std::vector<BridgeArray> out;
  for (size_t i = 0; i < value.size(); ++i) {
    auto array = read_array(value[i], fmt::format("{}[{}]", name, i));
    if (!array) return array.error();
    if (!names.insert(array->name).second) {
      return invalid(kWhere,
                     "inputs and outputs must have names of their own, found "
                     "{} twice",
                     in_quotes(array->name));
    }
    out.push_back(std::move(*array));
  }
  return out;
}

Result<void> read_artifact(const Json& value, BridgeSpec& out) {
  auto ok = check_fields(value, kWhere, "artifact", {"bytes", "crc32"});
  if (!ok) return ok;
  auto bytes =
      read_int(value.at("bytes"), kWhere, "artifact.bytes", 1, INT64_MAX);
  if (!bytes) return bytes.error();
  out.artifact_bytes = *bytes;
  auto crc =
      read_int(value.at("crc32"), kWhere, "artifact.crc32", 0, UINT32_MAX);
  if (!crc) return crc.error();
  out.artifact_crc32 = static_cast<uint32_t>(*crc);
  return {};
}

Result<void> read_kept(const Json& value, BridgeSpec& out) {
  auto ok = check_list(value, "kept_inputs", out.inputs.size());
  if (!ok) return ok;
  int64_t least = 0;
  const auto most = static_cast<int64_t>(out.inputs.size()) - 1;
  for (const Json& n : value) {
    auto index =
        read_int(n, kWhere, "each of kept_inputs, which rise,", least, most);
    if (!index) return index.error();
    out.kept_inputs.push_back(*index);
    least = *index + 1;
  }
  return {};
}

Result<BridgeAttention> read_attention(const Json& value) {
  if (auto ok = check_fields(value, kWhere, "attention",
                             {"mask", "layout", "roles"}, {"scale", "softcap"});
      !ok) {
    return ok.error();
  }
  BridgeAttention out;
  auto mask = read_string(value.at("mask"), kWhere, "attention.mask");
  if (!mask) return mask.error();
  out.mask = std::move(*mask);
  auto layout = read_string(value.at("layout"), kWhere, "attention.layout");
  if (!layout) return layout.error();
  if (*layout != "bhsd" && *layout != "bshd") {
    return invalid(kWhere, "attention.layout must be bhsd or bshd, found {}",
                   in_quotes(*layout));
  }
  out.bshd = *layout == "bshd";
  if (value.contains("scale")) {
    auto scale = read_number(value.at("scale"), kWhere, "attention.scale");
    if (!scale) return scale.error();
    out.scale = *scale;
  }
  if (value.contains("softcap")) {
    auto softcap =
        read_number(value.at("softcap"), kWhere, "attention.softcap");
    if (!softcap) return softcap.error();
    out.softcap = *softcap;
  }
  const Json& roles = value.at("roles");
  if (auto e = check_object(roles, kWhere, "attention.roles"); !e) {
    return e.error();
  }
  for (const auto& [role, array] : roles.items()) {
    if (!bridge::is_role(role)) {
      return invalid(kWhere, "roles must be among {}, found {}",
                     bridge::role_words(), in_quotes(role));
    }
    auto name = read_word(array, "attention.roles." + role);
    if (!name) return name.error();
    out.roles[role] = std::move(*name);
  }
  return out;
}

Result<void> read_platforms(const Json& platforms, BridgeSpec& out) {
  if (auto ok = check_list(platforms, "platforms", 16); !ok) return ok;
  for (const Json& platform : platforms) {
    auto word = read_word(platform, "each of platforms");
    if (!word) return word.error();
    out.platforms.push_back(std::move(*word));
  }
  return {};
}

// Reads the declaration that belongs to the operation.
Result<void> read_operation(const Json& json, BridgeSpec& out) {
  for (const char* what : {"attention", "splash"}) {
    const bool declared = json.contains(what);
    if (declared == (out.operation == what)) continue;
    return invalid(kWhere,
                   "{} must be declared where the operation is '{}' and "
                   "nowhere else, found {} for {}",
                   what, what, declared ? "it" : "nothing",
                   in_quotes(out.operation));
  }
  if (out.operation == "attention") {
    auto attention = read_attention(json.at("attention"));
    if (!attention) return attention.error();
    out.attention = std::move(*attention);
    if (auto ok = bridge::check_attention(out); !ok) return ok.error();
  }
  if (out.operation == "splash") {
    auto splash = bridge::read_splash(json.at("splash"), out);
    if (!splash) return splash.error();
    out.splash = *splash;
  }
  return {};
}

}  // namespace

Result<BridgeSpec> parse_bridge_spec(std::string_view text) {
  const auto parsed = parse_json(text, kWhere);
  if (!parsed) return parsed.error();
  const Json& json = **parsed;
  if (auto ok = check_fields(
          json, kWhere, "the file of shapes",
          {"format", "version", "name", "artifact", "jax",
           "calling_convention_version", "platforms", "platform_index",
           "inputs", "kept_inputs", "outputs", "operation"},
          {"attention", "splash"});
      !ok) {
    return ok.error();
  }
  auto format = read_string(json.at("format"), kWhere, "format");
  if (!format) return format.error();
  if (*format != kFormat) {
    return invalid(kWhere, "format must be '{}', found {}", kFormat,
                   in_quotes(*format));
  }
  auto version = read_int(json.at("version"), kWhere, "version", kSpecVersion,
                          kSpecVersion);
  if (!version) return version.error();

  BridgeSpec out;
  for (const auto& [name, to] :
       {std::pair("name", &out.name), std::pair("operation", &out.operation),
        std::pair("jax", &out.jax)}) {
    auto word = read_word(json.at(name), name);
    if (!word) return word.error();
    *to = std::move(*word);
  }
  if (auto ok = read_artifact(json.at("artifact"), out); !ok) {
    return ok.error();
  }
  auto convention =
      read_int(json.at("calling_convention_version"), kWhere,
               "calling_convention_version", kMinConvention, kMaxConvention);
  if (!convention) return convention.error();
  out.calling_convention_version = *convention;

  if (auto ok = read_platforms(json.at("platforms"), out); !ok) {
    return ok.error();
  }
  auto index = read_bool(json.at("platform_index"), kWhere, "platform_index");
  if (!index) return index.error();
  out.platform_index = *index;

  std::set<std::string> names;
  auto inputs = read_arrays(json.at("inputs"), "inputs", names);
  if (!inputs) return inputs.error();
  out.inputs = std::move(*inputs);
  auto outputs = read_arrays(json.at("outputs"), "outputs", names);
  if (!outputs) return outputs.error();
  out.outputs = std::move(*outputs);
  for (const BridgeArray& array : out.outputs) {
    if (!array.range) continue;
    return invalid(kWhere, "a range must be of an input, found one for {}",
                   in_quotes(array.name));
  }
  if (auto ok = read_kept(json.at("kept_inputs"), out); !ok) {
    return ok.error();
  }
  if (auto ok = read_operation(json, out); !ok) return ok.error();
  return out;
}

const BridgeArray* find_role(const BridgeSpec& spec, std::string_view role) {
  if (!spec.attention) return nullptr;
  const auto at = spec.attention->roles.find(std::string(role));
  if (at == spec.attention->roles.end()) return nullptr;
  for (const auto* arrays : {&spec.inputs, &spec.outputs}) {
    for (const BridgeArray& array : *arrays) {
      if (array.name == at->second) return &array;
    }
  }
  return nullptr;
}

}  // namespace tessera
