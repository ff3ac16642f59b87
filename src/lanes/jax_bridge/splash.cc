// lanes/jax_bridge/splash.cc: the sizes of a Splash kernel, from its arrays.
#include "lanes/jax_bridge/splash.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/fail.h"
#include "base/tensor_rows.h"
#include "base/text.h"
#include "tessera/plan.h"

namespace tessera::bridge {
namespace {

constexpr std::string_view kWhere = "bridge";
// The inputs of the kernel, in order; they are those of one batch row.
constexpr size_t kQ = 0, kK = 1, kV = 2, kDataNext = 3, kMaskNext = 4,
                 kBlockMask = 5, kMaskBlocks = 6, kLiveQueries = 7,
                 kLiveKeys = 8;
constexpr std::string_view kInputs[] = {
    "q",         "k",          "v",           "data_next",
    "mask_next", "block_mask", "mask_blocks", "live_queries",
    "live_keys"};
constexpr std::string_view kOutputs[] = {"out", "lse"};

Result<void> check_names(std::string_view what,
                         const std::vector<BridgeArray>& arrays,
                         std::span<const std::string_view> names) {
  std::vector<std::string_view> found;
  found.reserve(arrays.size());
  for (const BridgeArray& a : arrays) found.push_back(a.name);
  if (std::ranges::equal(found, names)) return {};
  return invalid(kWhere, "the {} of splash must be {}, found {}", what,
                 fmt::join(names, ", "),
                 in_quotes(fmt::format("{}", fmt::join(found, ", "))));
}

Result<void> check_array(const BridgeArray& a, Dtype dtype,
                         const std::vector<int64_t>& shape) {
  if (a.dtype == dtype && a.shape == shape) return {};
  return invalid(kWhere, "{} of splash must be {} [{}], found {} [{}]", a.name,
                 to_string(dtype), fmt::join(shape, ", "), to_string(a.dtype),
                 fmt::join(a.shape, ", "));
}

// Fails unless the array has three sizes above 0.
Result<void> check_rank(const BridgeArray& a) {
  if (a.shape.size() == 3 && std::ranges::count(a.shape, 0) == 0) return {};
  return invalid(kWhere,
                 "{} of splash must have three sizes, none of them 0, found "
                 "[{}]",
                 a.name, fmt::join(a.shape, ", "));
}

Result<void> check_numbers(const AttentionShape& s) {
  if (s.heads % s.kv_heads != 0) {
    return invalid(kWhere,
                   "the heads of k must divide those of q, found {} for {}",
                   s.kv_heads, s.heads);
  }
  if (!std::isfinite(s.scale_or_default()) || !std::isfinite(s.softcap) ||
      s.softcap < 0) {
    return invalid(kWhere,
                   "splash must have a finite scale and a softcap of 0 or "
                   "more, found {} and {}",
                   s.scale_or_default(), s.softcap);
  }
  return {};
}

Result<void> check_tiles(const BridgeSplash& s) {
  struct Side {
    std::string_view what;
    int64_t block, tokens;
  };
  for (const Side& side :
       {Side{"q", s.block_q, s.q_len}, Side{"kv", s.block_kv, s.kv_len}}) {
    if (side.tokens <= kMaxTokens && side.tokens % side.block == 0) continue;
    return invalid(kWhere,
                   "a block of splash must divide the tokens of {}, at most "
                   "{}, found {} for {}",
                   side.what, kMaxTokens, side.block, side.tokens);
  }
  if (s.mask_heads == 1 || s.mask_heads == s.shape.heads) return {};
  return invalid(kWhere,
                 "splash must have one mask or one a query head, found {} for "
                 "{} heads",
                 s.mask_heads, s.shape.heads);
}

Result<void> check_arrays(const BridgeSpec& spec, const BridgeSplash& s) {
  const auto& in = spec.inputs;
  const AttentionShape& a = s.shape;
  const std::vector<int64_t> grid = {s.mask_heads, s.q_len / s.block_q,
                                     s.width};
  struct Due {
    const BridgeArray& array;
    Dtype dtype;
    std::vector<int64_t> shape;
  };
  const Due due[] = {
      {in[kQ], s.dtype, {a.heads, s.q_len, a.head_dim}},
      {in[kK], s.dtype, {a.kv_heads, s.kv_len, a.head_dim}},
      {in[kV], s.dtype, {a.kv_heads, s.kv_len, a.v_head_dim}},
      {in[kDataNext], Dtype::i32, grid},
      {in[kMaskNext], Dtype::i32, grid},
      {in[kBlockMask], Dtype::i32, grid},
      {in[kMaskBlocks], Dtype::boolean, {s.blocks, s.block_q, s.block_kv}},
      {in[kLiveQueries], Dtype::boolean, {a.heads, s.q_len}},
      {in[kLiveKeys], Dtype::boolean, {a.kv_heads, s.kv_len}},
      {spec.outputs[0], s.dtype, {a.heads, s.q_len, a.v_head_dim}},
      {spec.outputs[1], Dtype::f32, {a.heads, s.q_len}},
  };
  for (const Due& d : due) {
    if (auto ok = check_array(d.array, d.dtype, d.shape); !ok) return ok;
  }
  return {};
}

Result<BridgeSplash> sizes_of(const BridgeSpec& spec,
                              std::optional<double> scale, double softcap) {
  if (auto ok = check_names("inputs", spec.inputs, kInputs); !ok) {
    return ok.error();
  }
  if (auto ok = check_names("outputs", spec.outputs, kOutputs); !ok) {
    return ok.error();
  }
  const auto& in = spec.inputs;
  for (const size_t i : {kQ, kK, kV, kBlockMask, kMaskBlocks}) {
    if (auto ok = check_rank(in[i]); !ok) return ok.error();
  }
  BridgeSplash out;
  out.dtype = in[kQ].dtype;
  if (!is_float_dtype(out.dtype)) {
    return invalid(kWhere, "q must be F32, BF16 or F16, found {}",
                   to_string(out.dtype));
  }
  out.shape = {in[kQ].shape[0], in[kK].shape[0], in[kQ].shape[2],
               in[kV].shape[2], scale,           softcap};
  out.q_len = in[kQ].shape[1];
  out.kv_len = in[kK].shape[1];
  out.mask_heads = in[kBlockMask].shape[0];
  out.width = in[kBlockMask].shape[2];
  out.blocks = in[kMaskBlocks].shape[0];
  out.block_q = in[kMaskBlocks].shape[1];
  out.block_kv = in[kMaskBlocks].shape[2];
  for (const auto& ok : {check_numbers(out.shape), check_tiles(out)}) {
    if (!ok) return ok.error();
  }
  if (auto ok = check_arrays(spec, out); !ok) return ok.error();
  return out;
}

// nullopt if there is no such field.
Result<std::optional<double>> read_if_any(const Json& value, const char* name) {
  if (!value.contains(name)) return std::optional<double>();
  auto number =
      read_number(value.at(name), kWhere, fmt::format("splash.{}", name));
  if (!number) return number.error();
  return std::optional(*number);
}

}  // namespace

Result<BridgeSplash> read_splash(const Json& value, const BridgeSpec& spec) {
  auto ok = check_fields(value, kWhere, "splash", {}, {"scale", "softcap"});
  if (!ok) return ok.error();
  auto scale = read_if_any(value, "scale");
  if (!scale) return scale.error();
  auto softcap = read_if_any(value, "softcap");
  if (!softcap) return softcap.error();
  return sizes_of(spec, *scale, softcap->value_or(0));
}

Result<BridgeSplash> splash_of(const BridgeSpec& spec) {
  if (!spec.splash) {
    return invalid(kWhere,
                   "to run as splash, an artifact must declare it, found {}",
                   in_quotes(spec.operation));
  }
  return sizes_of(spec, spec.splash->shape.scale, spec.splash->shape.softcap);
}

}  // namespace tessera::bridge
