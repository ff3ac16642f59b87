// cli/run/options.cc: the flags of `tessera run`, and what the file of inputs
// says in their place.
#include "cli/run/options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include "base/fail.h"
#include "base/files.h"
#include "base/text.h"
#include "base/threads.h"
#include "cli/bridge/data.h"
#include "cli/numbers.h"
#include "cli/run/cache_folder.h"
#include "cli/trace_flag.h"
#include "lanes/tensors.h"
#include "receipt/machine.h"
#include "run/session_state.h"

namespace tessera::cli {
namespace {

constexpr const char* kShapeGroup = "The arrays";
constexpr const char* kRunGroup = "The run";
constexpr int64_t kMaxHeads = int64_t{1} << 16;
constexpr int64_t kMostDim = int64_t{1} << 16;  // of any lane
constexpr int64_t kMostCompiles = int64_t{1} << 31;
constexpr int64_t kDefaultHeads = 8;
constexpr int64_t kDefaultDim = 128;

struct DtypeWord {
  std::string_view word;
  Dtype dtype;
};
constexpr DtypeWord kDtypes[] = {
    {"f32", Dtype::f32}, {"bf16", Dtype::bf16}, {"f16", Dtype::f16}};

// A flag, the file's value, or the default; the first two must agree.
Result<int64_t> size_of(const std::optional<std::string>& flag,
                        std::string_view name, std::optional<int64_t> in_file,
                        int64_t otherwise, int64_t most) {
  if (!flag) return in_file.value_or(otherwise);
  auto value = parse_int(*flag, name, 1, most);
  if (value && in_file && *value != *in_file) {
    return invalid("inputs", "{} must be the file's {}, found {}", name,
                   *in_file, *value);
  }
  return value;
}

Result<double> parse_finite(std::string_view text, std::string_view what,
                            double least) {
  const std::string_view word = trim(text);
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
  for (const DtypeWord& d : kDtypes) {
    if (*flag != d.word) continue;
    if (in_file && *in_file != d.dtype) {
      return invalid("inputs", "--dtype must be the file's {}, found {}",
                     to_string(*in_file), *flag);
    }
    return d.dtype;
  }
  return invalid("cli", "--dtype must be one of f32, bf16, f16, found {}",
                 in_quotes(*flag));
}

constexpr int64_t kMaxGateBytes = int64_t{1} << 26;

// Flags that only some lanes take, which are named as an error names them.
struct LaneFlag {
  std::optional<std::string> RunFlags::*flag;
  std::string_view name;
  uint32_t lanes;  // bits by LaneId
  std::string_view words;
};
constexpr uint32_t bits(std::initializer_list<LaneId> lanes) {
  uint32_t out = 0;
  for (const LaneId lane : lanes) out |= 1U << static_cast<unsigned>(lane);
  return out;
}
constexpr uint32_t kCpu = bits({LaneId::cpu}), kXla = bits({LaneId::xla}),
                   kCompiled = bits({LaneId::xla, LaneId::mosaic}),
                   kPlugin =
                       bits({LaneId::xla, LaneId::mosaic, LaneId::jax_bridge});
constexpr std::string_view kPluginWords = "xla, mosaic or jax_bridge";
constexpr LaneFlag kLaneFlags[] = {
    {&RunFlags::threads, "--threads", kCpu, "cpu"},
    {&RunFlags::isa, "--isa", kCpu, "cpu"},
    {&RunFlags::plugin, "--plugin", kPlugin, kPluginWords},
    {&RunFlags::device, "--device", kPlugin, kPluginWords},
    {&RunFlags::method, "--method", kXla, "xla"},
    {&RunFlags::cache, "--cache", kPlugin, kPluginWords},
    {&RunFlags::max_compiles, "--max-compiles", kCompiled, "xla or mosaic"},
    {&RunFlags::artifact, "--artifact", bits({LaneId::jax_bridge}),
     "jax_bridge"},
};

Result<void> read_cpu(const RunFlags& f, CpuOptions& cpu) {
  if (f.threads) {
    auto threads = parse_int(*f.threads, "--threads", 1, kMaxThreads);
    if (!threads) return threads.error();
    cpu.threads = static_cast<int>(*threads);
  }
  if (f.isa) {
    auto isa = parse_isa(*f.isa);
    if (!isa) return isa.error();
    cpu.isa = *isa;
  }
  return {};
}

Result<void> read_xla(const RunFlags& f, XlaOptions& xla) {
  if (f.plugin) xla.plugin = *f.plugin;
  if (f.method) {
    auto method = parse_xla_method(*f.method);
    if (!method) return method.error();
    xla.method = *method;
  }
  auto device = parse_device(f.device.value_or("0"));
  if (!device) return device.error();
  xla.device = *device;
  auto compiles = parse_int(f.max_compiles.value_or("0"), "--max-compiles", 0,
                            kMostCompiles);
  if (!compiles) return compiles.error();
  xla.max_compiles = *compiles;
  auto folder = cache_folder(f.cache);
  if (!folder) return folder.error();
  xla.cache_folder = std::move(*folder);
  return {};
}

// What the bridge runs must give all that a run compares.
Result<void> read_bridge(const RunFlags& f, LaneOptions& options) {
  if (f.artifact.has_value() != f.shapes.has_value()) {
    return invalid("cli", "--artifact goes with --shapes, found {} alone",
                   f.artifact ? "--artifact" : "--shapes");
  }
  if (!f.artifact) return {};
  auto artifact = read_artifact(*f.artifact, *f.shapes);
  if (!artifact) return artifact.error();
  if (!artifact->spec.attention || !find_role(artifact->spec, "lse")) {
    return invalid("cli",
                   "--artifact must be attention that gives lse, found {} "
                   "without (`tessera bridge` runs any operation)",
                   in_quotes(artifact->spec.name));
  }
  options.artifact = std::move(*artifact);
  return {};
}

Result<LaneId> lane_of(std::string_view text, std::string_view flag) {
  std::string names;
  for (const Lane& lane : lanes()) {
    // Nothing falls back to what means something else.
    if (flag != "--lane" && !facts_of(lane.lane).same_meaning) continue;
    if (text == to_string(lane.lane)) return lane.lane;
    names += fmt::format(", {}", to_string(lane.lane));
  }
  return invalid("cli", "{} must be one of {}{}, found {}", flag,
                 flag == "--lane" ? "auto" : names.substr(2),
                 flag == "--lane" ? names : "", in_quotes(text));
}

Result<void> read_lane(const RunFlags& f, RunOptions& o) {
  if (f.lane && *f.lane != "auto") {
    auto lane = lane_of(*f.lane, "--lane");
    if (!lane) return lane.error();
    o.forced = *lane;
  }
  if (f.fallback) {
    for (const std::string_view name : split(*f.fallback, ',')) {
      auto lane = lane_of(trim(name), "--fallback");
      if (!lane) return lane.error();
      o.fallback.push_back(*lane);
    }
    if (auto e = check_fallback(o.fallback); !e) return e.error();
  }
  if (f.gate) {
    if (o.forced) {
      return invalid("cli", "--gate goes with --lane auto, found --lane {}",
                     to_string(*o.forced));
    }
    auto text = read_file(*f.gate, kMaxGateBytes);
    if (!text) return text.error();
    auto gate = parse_gate(*text);
    if (!gate) return gate.error();
    o.gate = std::move(*gate);
  }
  if (o.forced) {
    std::vector<LaneId> lanes = o.fallback;
    lanes.push_back(*o.forced);
    if (auto e = check_lane_flags(f, lanes, to_string(*o.forced)); !e) return e;
  }
  if (auto e = read_bridge(f, o.lane_options); !e) return e.error();
  if (auto e = read_cpu(f, o.lane_options.cpu); !e) return e.error();
  return read_xla(f, o.lane_options.xla);
}

// What a lane with kernels would refuse only when all arrays are there; `lane`
// is what errors call it.
Result<void> check_dims(const AttentionData& d, std::string_view lane) {
  for (const auto& [dim, what] :
       {std::pair(d.shape.head_dim, "--head-dim"),
        std::pair(d.shape.v_head_dim, "--v-head-dim")}) {
    if (dim % kDimStep != 0 || dim > kMaxDim) {
      return invalid("cli",
                     "{} must be a multiple of {} up to {} for --lane {}, "
                     "found {}",
                     what, kDimStep, kMaxDim, lane, dim);
    }
  }
  return {};
}

}  // namespace

Result<void> open_early(RunOptions& o) {
  SessionOptions options;
  options.lane = o.forced;
  options.fallback = o.fallback;
  options.cpu = o.lane_options.cpu;
  options.cpu.progress = [told = o.progress](double share) {
    if (*told) (*told)(share);
  };
  options.xla = o.lane_options.xla;
  options.artifact = o.lane_options.artifact;
  options.gate = o.gate;
  options.memory = [] { return static_cast<double>(available_memory()); };
  if (o.fallback.empty() && o.forced != LaneId::reference &&
      o.forced != LaneId::jax_bridge) {
    auto e = check_dims(o.data, o.forced ? to_string(*o.forced) : "auto");
    if (!e) return e;
  }
  auto session = Session::open(std::move(options));
  if (!session) return session.error();
  o.session = std::move(*session);
  return {};
}

Result<void> check_lane_flags(const RunFlags& f,
                              const std::vector<LaneId>& lanes,
                              std::string_view asked) {
  for (const LaneFlag& l : kLaneFlags) {
    const auto takes = [&](LaneId lane) {
      return (l.lanes >> static_cast<unsigned>(lane) & 1U) != 0;
    };
    if (f.*l.flag && std::none_of(lanes.begin(), lanes.end(), takes)) {
      return invalid("cli", "{} goes with --lane {}, found --lane {}", l.name,
                     l.words, asked);
    }
  }
  return {};
}

Result<void> read_shape(const RunFlags& f, RunOptions& o) {
  AttentionShape& s = o.data.shape;
  const InputFile* file = o.inputs ? &*o.inputs : nullptr;
  struct Size {
    const std::optional<std::string>& flag;
    std::string_view name;
    int64_t InputFile::*in_file;
    int64_t AttentionShape::*out;
    // Of the default: another size, or a number.
    int64_t AttentionShape::*like;
    int64_t otherwise;
    int64_t most;
  };
  for (const Size& n :
       {Size{f.heads, "--heads", &InputFile::heads, &AttentionShape::heads,
             nullptr, kDefaultHeads, kMaxHeads},
        Size{f.kv_heads, "--kv-heads", &InputFile::kv_heads,
             &AttentionShape::kv_heads, &AttentionShape::heads, 0, kMaxHeads},
        Size{f.head_dim, "--head-dim", &InputFile::head_dim,
             &AttentionShape::head_dim, nullptr, kDefaultDim, kMostDim},
        Size{f.v_head_dim, "--v-head-dim", &InputFile::v_head_dim,
             &AttentionShape::v_head_dim, &AttentionShape::head_dim, 0,
             kMostDim}}) {
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

void add_shape_flags(Command& command, RunFlags& f, const char* dtypes,
                     const char* target_help) {
  add_request_flags(command, f.request, target_help);
  add_flags(
      command, kShapeGroup,
      {
          {"--heads", &f.heads, "N", "Query heads [8]"},
          {"--kv-heads", &f.kv_heads, "N", "Key and value heads [heads]"},
          {"--head-dim", &f.head_dim, "N", "Of queries and keys [128]"},
          {"--v-head-dim", &f.v_head_dim, "N", "Of values [head-dim]"},
          {"--dtype", &f.dtype, "NAME", dtypes},
          {"--layout", &f.layout, "NAME",
           "bhsd, [batch, heads, tokens, dim], or bshd, in memory and in files "
           "[bhsd]"},
          {"--scale", &f.scale, "X", "Of the scores [1 / sqrt(head-dim)]"},
          {"--softcap", &f.softcap, "X", "Cap of the scores, 0 is off [0]"},
          {"--sink-logits", &f.sink_logits, "",
           "One more logit a head: the file's, or from the seed"},
          {"--backward", &f.backward, "", "Forward, then the gradients"},
      });
}

void add_run_flags(Command& command, RunFlags& f) {
  add_shape_flags(command, f, "f32, bf16 or f16 [f32]");
  add_flags(command, kShapeGroup,
            {
                {"--inputs", &f.inputs, "FILE",
                 ".safetensors with q, k, v and perhaps dout, dlse, "
                 "sink_logits; its shapes stand for flags [random]"},
                {"--seed", &f.seed, "N",
                 "Of random inputs and of a sampled check [0]"},
            });
  add_flags(
      command, kRunGroup,
      {
          {"--lane", &f.lane, "NAME",
           "cpu, reference (dense, fp64), xla (the compiler of a PJRT plugin), "
           "mosaic (our TPU kernel), jax_bridge (what JAX exported), which "
           "then "
           "runs or fails; or auto, which `tessera choose` explains [auto]"},
          {"--fallback", &f.fallback, "NAME[,NAME...]",
           "Lanes that may step in, in this order, where the lane does not "
           "start [none: that is an error]"},
          {"--gate", &f.gate, "FILE",
           "What `tessera gate` measured: goes before the rules of --lane "
           "auto"},
          {"--threads", &f.threads, "N", "Of the cpu lane [every core]"},
          {"--isa", &f.isa, "NAME",
           "portable, avx2, avx512 or avx512bf16, which this machine must have "
           "[TESSERA_ISA, or the best]"},
          {"--plugin", &f.plugin, "NAME",
           "Of the xla lane, the bridge or mosaic: a file or a known name "
           "[xla_cpu_pjrt; of mosaic libtpu]"},
          {"--device", &f.device, "N", "Of the plugin's devices [0]"},
          {"--method", &f.method, "NAME",
           "Of the xla lane: worklist, chunked or dense [worklist]"},
          {"--cache", &f.cache, "FOLDER",
           "Keeps what the xla lane compiles; or off [TESSERA_CACHE, or the "
           "user's cache folder]"},
          {"--max-compiles", &f.max_compiles, "N",
           "Of the xla lane, 0 is no limit: one more is an error [0]"},
          {"--artifact", &f.artifact, "FILE",
           "Of --lane jax_bridge: attention as jax.export serializes it"},
          {"--shapes", &f.shapes, "FILE", "The JSON beside the artifact"},
          {"--check", &f.check, "",
           "Compare with fp64: everything where it is small, else sampled "
           "rows"},
          {"--outputs", &f.outputs, "FILE",
           "Write out, lse and the gradients to a .safetensors file"},
          {"--receipt", &f.receipt, "FILE", "Write the receipt, a JSON object"},
          {"--trace", &f.trace, "FILE", kTraceHelp},
      });
}

Result<RunOptions> read_run_options(const RunFlags& f) {
  RunOptions o;
  o.data.backward = f.backward;
  o.sink_logits = f.sink_logits;
  if (f.layout && *f.layout != "bhsd" && *f.layout != "bshd") {
    return invalid("cli", "--layout must be one of bhsd, bshd, found {}",
                   in_quotes(*f.layout));
  }
  if (f.layout == "bshd") o.data.layout = Layout::bshd;
  auto seed = parse_seed(f.seed.value_or("0"));
  if (!seed) return seed.error();
  o.seed = *seed;
  if (auto e = read_lane(f, o); !e) return e.error();
  if (f.inputs) {
    auto file = read_inputs(*f.inputs, o.data.layout);
    if (!file) return file.error();
    o.inputs = std::move(*file);
  }
  if (auto e = read_shape(f, o); !e) return e.error();
  return o;
}

}  // namespace tessera::cli
