// cli/run/options.cc: reads options from flags and the file of inputs.
#include "cli/run/options.h"

#include <charconv>
#include <cmath>
#include <utility>

#include "base/dtype_word.h"
#include "base/fail.h"
#include "base/text.h"
#include "cli/numbers.h"
#include "request/numbers.h"

namespace tessera::cli {
namespace {

constexpr int64_t kDefaultHeads = 8;
constexpr int64_t kDefaultDim = 128;

// A size from the flag, the file or the default. Flag and file must agree.
Result<int64_t> size_of(const std::optional<std::string>& flag,
                        std::string_view name, std::optional<int64_t> in_file,
                        int64_t otherwise, int64_t most) {
  if (!flag) return in_file.value_or(otherwise);
  auto value = request::parse_int(*flag, name, 1, most);
  if (value && in_file && *value != *in_file) {
    return invalid("inputs", "{} must be the file's {}, found {}", name,
                   *in_file, *value);
  }
  return value;
}

Result<double> parse_finite(std::string_view text, std::string_view what,
                            double least) {
  const std::string_view word = request::trim(text);
  double value = 0;
  const auto [end, code] =
      std::from_chars(word.data(), word.data() + word.size(), value);
  if (code != std::errc{} || end != word.data() + word.size() ||
      !std::isfinite(value) || value < least) {
    return invalid(
        "cli", "{} must be a finite number{}, found {}", what,
        std::isfinite(least) ? fmt::format(", at least {}", least) : "",
        in_quotes(text));
  }
  return value;
}

Result<Dtype> dtype_of(const std::optional<std::string>& flag,
                       std::optional<Dtype> in_file) {
  if (!flag) return in_file.value_or(Dtype::f32);
  const std::optional<Dtype> dtype = attention_dtype(*flag);
  if (!dtype) {
    return invalid("cli", "--dtype must be one of f32, bf16, f16, found {}",
                   in_quotes(*flag));
  }
  if (in_file && *in_file != *dtype) {
    return invalid("inputs", "--dtype must be the file's {}, found {}",
                   to_string(*in_file), *flag);
  }
  return *dtype;
}

}  // namespace

Result<void> read_shape(const RunFlags& f, RunOptions& o) {
  AttentionShape& s = o.data.shape;
  const request::InputFile* file = o.inputs ? &*o.inputs : nullptr;
  struct Size {
    const std::optional<std::string>& flag;
    std::string_view name;
    int64_t request::InputFile::*in_file;
    int64_t AttentionShape::*out;
    // The default: that of another size, or a number.
    int64_t AttentionShape::*like;
    int64_t otherwise;
    int64_t most;
  };
  for (const Size& n :
       {Size{f.heads, "--heads", &request::InputFile::heads,
             &AttentionShape::heads, nullptr, kDefaultHeads, kMaxHeads},
        Size{f.kv_heads, "--kv-heads", &request::InputFile::kv_heads,
             &AttentionShape::kv_heads, &AttentionShape::heads, 0, kMaxHeads},
        Size{f.head_dim, "--head-dim", &request::InputFile::head_dim,
             &AttentionShape::head_dim, nullptr, kDefaultDim, kMaxHeadDim},
        Size{f.v_head_dim, "--v-head-dim", &request::InputFile::v_head_dim,
             &AttentionShape::v_head_dim, &AttentionShape::head_dim, 0,
             kMaxHeadDim}}) {
    auto value =
        size_of(n.flag, n.name,
                file ? std::optional<int64_t>(file->*n.in_file) : std::nullopt,
                n.like ? s.*n.like : n.otherwise, n.most);
    if (!value) return value.error();
    s.*n.out = *value;
  }
  if (s.heads % s.kv_heads != 0) {
    return invalid("cli", "--kv-heads must divide --heads, found {} for {}",
                   s.kv_heads, s.heads);
  }
  if (f.scale) {
    auto scale = parse_finite(*f.scale, "--scale", -INFINITY);
    if (!scale) return scale.error();
    s.scale = *scale;
  }
  if (f.softcap) {
    auto softcap = parse_finite(*f.softcap, "--softcap", 0);
    if (!softcap) return softcap.error();
    s.softcap = *softcap;
  }
  auto dtype =
      dtype_of(f.dtype, file ? std::optional(file->dtype) : std::nullopt);
  if (!dtype) return dtype.error();
  o.data.dtype = *dtype;
  return {};
}

Result<RunOptions> read_run_options(const RunFlags& f) {
  RunOptions o;
  o.data.backward = f.backward;
  o.sink_logits = f.sink_logits;
  if (f.layout && *f.layout != "bhsd" && *f.layout != "bshd") {
    return invalid("cli", "--layout must be one of bhsd, bshd, found {}",
                   in_quotes(*f.layout));
  }
  if (f.layout == "bshd") o.data.layout = request::Layout::bshd;
  auto seed = parse_seed(f.seed.value_or("0"));
  if (!seed) return seed.error();
  o.seed = *seed;
  if (f.sink_telemetry) {
    auto keys = request::parse_int(*f.sink_telemetry, "--sink-telemetry", 1,
                                   kMaxTokens);
    if (!keys) return keys.error();
    o.data.first_keys = *keys;
  }
  if (auto e = read_lane_options(f, o.lanes); !e) return e.error();
  if (f.inputs) {
    auto file = read_inputs(*f.inputs, o.data.layout);
    if (!file) return file.error();
    o.inputs = std::move(*file);
  }
  if (auto e = read_shape(f, o); !e) return e.error();
  return o;
}

}  // namespace tessera::cli
