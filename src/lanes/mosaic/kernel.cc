// lanes/mosaic/kernel.cc: from a request to a kernel, its contract and program.
#include "lanes/mosaic/kernel.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/fail.h"
#include "base/integers.h"
#include "base/text.h"
#include "lanes/mosaic/backward.h"
#include "lanes/mosaic/forward.h"
#include "lanes/mosaic/parts.h"
#include "lanes/mosaic/program.h"
#include "lanes/mosaic/rule.h"
#include "mask/bind.h"

namespace tessera {
namespace {

using mosaic::kDimStep;
using mosaic::KernelShape;
using mosaic::kLanes;
using mosaic::kMaxDim;
using mosaic::Rule;

// Of each text; a kernel of another number is another contract.
constexpr int64_t kForwardVersion = 2;
constexpr int64_t kBackwardVersion = 1;
constexpr int64_t kMaxTileSide = 1024;
// Of the scale and of a softcap: beyond these float32 would silently make
// infinity or 0 of the scores, or of the scale over the softcap.
constexpr double kMinScale = 1e-30;
constexpr double kMaxScale = 1e6;
// Of the largest array: beyond any device, and safe to multiply.
constexpr int64_t kMaxArrayBytes = int64_t{1} << 40;
constexpr int64_t kMaxBitmapBytes = int64_t{1} << 29;

// "v6e" or "v6e:2x2".
bool is_target(std::string_view text) {
  const size_t colon = text.find(':');
  const std::string_view chip = text.substr(0, colon);
  const std::string_view grid =
      colon == std::string_view::npos ? "1" : text.substr(colon + 1);
  return chip.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789") ==
             std::string_view::npos &&
         !grid.empty() &&
         grid.find_first_not_of("0123456789x") == std::string_view::npos;
}

// What only the forward kernel of 16-bit numbers has.
Result<void> check_row_sum(const AttentionCall& call, RowSum row_sum) {
  if (row_sum == RowSum::exact) return {};
  if (call.backward) {
    return invalid("mosaic",
                   "a rounded row sum goes with forward, found it with "
                   "backward");
  }
  if (call.dtype == Dtype::bf16) return {};
  return invalid("mosaic", "a rounded row sum goes with bf16, found {}",
                 to_string(call.dtype));
}

Result<void> check_type(Dtype dtype) {
  if (dtype == Dtype::bf16 || dtype == Dtype::f32) return {};
  if (dtype != Dtype::f16) {
    return invalid("mosaic", "the type must be bf16 or f32, found {}",
                   to_string(dtype));
  }
  return invalid("mosaic",
                 "the type must be bf16 or f32, found {}, which the compiler "
                 "of v6e does not load (cast to one of them, or take another "
                 "lane)",
                 to_string(dtype));
}

Result<void> check_attention(const AttentionCall& call) {
  const AttentionShape& s = call.shape;
  struct Size {
    std::string_view what;
    int64_t found;
  };
  for (const Size& n :
       {Size{"head dim", s.head_dim}, Size{"value head dim", s.v_head_dim}}) {
    if (n.found < 1 || n.found % kDimStep != 0 || n.found > kMaxDim) {
      return invalid("mosaic", "{} must be a multiple of {} up to {}, found {}",
                     n.what, kDimStep, kMaxDim, n.found);
    }
  }
  if (s.heads < 1 || s.heads > kMaxHeads) {
    return invalid("mosaic", "heads must be from 1 to {}, found {}", kMaxHeads,
                   s.heads);
  }
  if (s.kv_heads < 1 || s.heads % s.kv_heads != 0) {
    return invalid("mosaic", "kv heads must divide heads, found {} for {}",
                   s.kv_heads, s.heads);
  }
  if (auto e = check_type(call.dtype); !e) return e.error();
  if (call.dlse && !call.backward) {
    return invalid("mosaic",
                   "the log-sum-exp's gradient goes with backward, found it "
                   "with forward");
  }
  if (s.softcap != 0 && !(s.softcap >= kMinScale && s.softcap <= kMaxScale)) {
    return invalid("mosaic", "softcap must be 0 or from {} to {}, found {}",
                   kMinScale, kMaxScale, s.softcap);
  }
  const double scale = s.scale_or_default();
  if (!(scale >= kMinScale && scale <= kMaxScale)) {
    return invalid("mosaic", "scale must be from {} to {}, found {}", kMinScale,
                   kMaxScale, scale);
  }
  return {};
}

Result<void> check_options(const MosaicOptions& o, const Tile& tile) {
  struct Range {
    std::string_view what;
    int64_t found, most;
  };
  for (const Range& r :
       {Range{"tiles a pass", o.tiles_per_pass, kMosaicMaxTilesPerPass},
        Range{"passes to fetch ahead", o.fetch_ahead, kMosaicMaxFetchAhead}}) {
    if (r.found < 1 || r.found > r.most) {
      return invalid("mosaic", "{} must be from 1 to {}, found {}", r.what,
                     r.most, r.found);
    }
  }
  for (const int64_t side : {tile.q, tile.kv}) {
    if (side % kLanes != 0 || side > kMaxTileSide) {
      return invalid("mosaic",
                     "a tile's sides must be multiples of {} up to {}, found "
                     "{}x{}",
                     kLanes, kMaxTileSide, tile.q, tile.kv);
    }
  }
  return {};
}

Result<void> check_rows(const KernelShape& s) {
  const int64_t most = std::max(s.rows(), s.columns());
  if (most <= kMaxStepRows) return {};
  return over_limit("mosaic",
                    "packed steps count at most {} tile rows or columns, found "
                    "{} (use a larger tile)",
                    kMaxStepRows, most);
}

// Filling up the passes of every list costs at most tiles_per_pass - 1 steps.
int64_t steps_of(const KernelShape& s, bool backward, int64_t ceiling) {
  const int64_t lists = s.lists() * (backward ? s.columns() : s.rows());
  const int64_t most = backward ? s.rows() : s.columns();
  const int64_t steps = lists * round_up(most, s.tiles_per_pass);
  if (ceiling == 0) return steps;
  return std::min(steps, ceiling + lists * (s.tiles_per_pass - 1));
}

// As many as the plan has of them: by mask, or by heads that pick.
int64_t plan_heads_of(const Request& request, const Facts& present) {
  const auto masks = static_cast<int64_t>(request.masks.size());
  if (!present.picks || !mask::names_of(request).picks) return masks;
  return std::max(masks, present.picks->heads);
}

// Every step may have its own, as far as they fit.
int64_t bitmaps_of(const KernelShape& s) {
  const int64_t bytes = s.bit_rows() * s.block_q * 4;
  return std::min(mosaic::kFirstBitmap + s.steps, kMaxBitmapBytes / bytes);
}

Result<KernelShape> shape_of(const Request& request, const Facts& present,
                             const AttentionCall& call,
                             const MosaicOptions& options) {
  KernelShape s;
  s.batch = bucket(request.batch);
  s.heads = call.shape.heads;
  s.kv_heads = call.shape.kv_heads;
  s.head_dim = call.shape.head_dim;
  s.v_head_dim = call.shape.v_head_dim;
  s.dtype = call.dtype;
  s.q_len = round_up(bucket(request.q_len), request.tile.q);
  s.kv_len = round_up(bucket(request.kv_len), request.tile.kv);
  s.block_q = request.tile.q;
  s.block_kv = request.tile.kv;
  s.tiles_per_pass = options.tiles_per_pass;
  s.fetch_ahead = options.fetch_ahead;
  s.scale = call.shape.scale_or_default();
  s.softcap = call.shape.softcap;
  s.plan_heads = plan_heads_of(request, present);
  if (s.heads % s.plan_heads != 0) {
    return invalid("mosaic",
                   "heads must be a multiple of the plan's, found {} for {}",
                   s.heads, s.plan_heads);
  }
  std::optional<Rule> rule;
  if (s.plan_heads == 1) rule = mosaic::rule_of(request.masks.front());
  s.has_low = rule && rule->low;
  s.has_high = rule && rule->high;
  s.has_dlse = call.dlse;
  s.has_sinks = call.sink_logits;
  s.rounded_sum = options.row_sum == RowSum::rounded;
  if (auto e = check_rows(s); !e) return e.error();
  s.steps = steps_of(s, call.backward, request.ceilings.max_steps);
  if (!rule) s.bitmaps = bitmaps_of(s);
  return s;
}

// The kernel counts passes, heads and keys in 32 bits.
Result<void> check_sizes(const KernelShape& s) {
  const int64_t passes = s.steps / s.tiles_per_pass * s.heads;
  if (passes > INT32_MAX - s.fetch_ahead) {
    return over_limit("mosaic",
                      "passes of all heads must be at most {}, found {}",
                      INT32_MAX - s.fetch_ahead, passes);
  }
  const auto width = static_cast<double>(byte_width(s.dtype));
  const auto lanes =
      static_cast<double>(round_up(std::max(s.head_dim, s.v_head_dim), kLanes));
  const double bytes = width * lanes * static_cast<double>(s.batch) *
                       static_cast<double>(s.heads) *
                       static_cast<double>(std::max(s.q_len, s.kv_len));
  if (bytes > static_cast<double>(kMaxArrayBytes)) {
    return over_limit("mosaic",
                      "an array must be at most {} bytes, found {:.3g}",
                      kMaxArrayBytes, bytes);
  }
  return {};
}

Result<void> check_scalar_memory(const KernelShape& s, const Target& memory) {
  const int64_t words = scalar_words(
      memory, {s.steps, s.lists() + 1, s.batch + mosaic::kBoundsHead,
               s.bitmaps > 0 ? s.steps : 0, s.has_sinks ? s.heads : 0});
  if (words <= memory.scalar_words) return {};
  return over_limit("mosaic",
                    "the scalar arrays must fit the {} words of {}, found {} "
                    "(set max_steps, or use a larger tile)",
                    memory.scalar_words, memory.name, words);
}

Result<void> check_vector_memory(int64_t bytes, bool backward) {
  const int64_t room =
      backward ? mosaic::kMaxBackwardBytes : mosaic::kMaxForwardBytes;
  if (bytes <= room) return {};
  return over_limit("mosaic",
                    "the scratch must fit {} bytes of vector memory, found {} "
                    "({})",
                    room, bytes,
                    backward ? "dQ, Q and dout of a head stay there: fewer "
                               "queries, or heads that share fewer keys"
                             : "fetch less far ahead, or use a smaller tile");
}

std::vector<mosaic::Argument> arguments_of(const KernelShape& s,
                                           bool backward) {
  return backward ? mosaic::backward_arguments(s)
                  : mosaic::forward_arguments(s);
}

int outputs_of(const KernelShape& s, bool backward) {
  return backward ? mosaic::backward_outputs(s) : mosaic::kForwardOutputs;
}

KernelContract contract_of(const MosaicKernel& kernel,
                           const std::string& target) {
  const bool backward = kernel.call.backward;
  KernelChoice choice;
  choice.lane = "mosaic";
  choice.target = target;
  choice.direction = backward ? "backward" : "forward";
  choice.dtype = to_string(kernel.call.dtype);
  choice.shape = kernel.call.shape;
  choice.parameters = {
      {"tiles_per_pass", kernel.options.tiles_per_pass},
      {"fetch_ahead", kernel.options.fetch_ahead},
      {"kernel_version", backward ? kBackwardVersion : kForwardVersion}};
  if (backward) {
    choice.parameters["dlse"] = kernel.call.dlse;
  } else {
    choice.parameters["row_sum_rounded"] =
        kernel.options.row_sum == RowSum::rounded;
  }
  if (kernel.bitmaps > 0) choice.parameters["bitmaps"] = kernel.bitmaps;
  if (kernel.call.sink_logits) choice.parameters["sink_logits"] = true;
  return make_kernel_contract(kernel.plan, choice);
}

}  // namespace

int64_t mosaic::least_backward_bytes(const RequestFeatures& f) {
  KernelShape s;
  s.heads = f.shape.heads;
  s.kv_heads = f.shape.kv_heads;
  s.head_dim = f.shape.head_dim;
  s.v_head_dim = f.shape.v_head_dim;
  s.dtype = f.call.dtype;
  s.q_len = round_up(bucket(f.q_len), f.tile.q);
  s.kv_len = round_up(bucket(f.kv_len), f.tile.kv);
  s.block_q = f.tile.q;
  s.block_kv = f.tile.kv;
  s.tiles_per_pass = s.fetch_ahead = 1;
  int64_t least = INT64_MAX;
  // Masks by ids and by bitmaps keep other things.
  for (const int64_t bitmaps : {0, 1}) {
    s.bitmaps = bitmaps;
    least = std::min(least, vector_bytes(backward_arguments(s)));
  }
  return least;
}

Result<mosaic::PlannedKernel> mosaic::plan_kernel(
    const Request& request, const Facts& present, const AttentionCall& call,
    const std::string& target, const MosaicOptions& options) {
  auto plan = make_ceiling_contract(request, present);
  if (!plan) return plan.error();
  if (auto e = check_row_sum(call, options.row_sum); !e) return e.error();
  if (auto e = check_attention(call); !e) return e.error();
  if (auto e = check_options(options, request.tile); !e) return e.error();
  if (!is_target(target)) {
    return invalid("mosaic", "a target must read as v6e:1x1, found {}",
                   in_quotes(target));
  }
  auto memory = find_target(target.substr(0, target.find(':')));
  if (!memory) return memory.error();
  auto shape = shape_of(request, present, call, options);
  if (!shape) return shape.error();
  if (auto e = check_sizes(*shape); !e) return e.error();
  if (auto e = check_scalar_memory(*shape, *memory); !e) return e.error();
  const std::vector<Argument> arguments = arguments_of(*shape, call.backward);

  PlannedKernel out;
  out.shape = *shape;
  MosaicKernel& k = out.kernel;
  k.vector_bytes = vector_bytes(arguments);
  if (auto e = check_vector_memory(k.vector_bytes, call.backward); !e) {
    return e.error();
  }
  k.scalar_words = scalar_words_of(arguments);
  k.plan = std::move(*plan);
  k.batch = shape->batch;
  k.q_len = shape->q_len;
  k.kv_len = shape->kv_len;
  k.steps = shape->steps;
  k.tile = request.tile;
  k.options = options;
  k.call = call;
  k.mask = mask_text(request);
  k.plan_heads = shape->plan_heads;
  k.bitmaps = shape->bitmaps;
  k.contract = contract_of(k, target);
  return out;
}

std::string_view to_string(RowSum row_sum) {
  return row_sum == RowSum::exact ? "exact" : "rounded";
}

std::string_view mosaic::name_of(const PlannedKernel& planned) {
  return planned.kernel.call.backward ? "tessera_backward" : "tessera_forward";
}

std::string mosaic::text_of(const PlannedKernel& planned) {
  return planned.kernel.call.backward ? backward_kernel(planned.shape)
                                      : forward_kernel(planned.shape);
}

mosaic::CallArrays mosaic::arrays_of(const PlannedKernel& planned) {
  const bool backward = planned.kernel.call.backward;
  return call_arrays(arguments_of(planned.shape, backward),
                     outputs_of(planned.shape, backward));
}

mosaic::KernelText mosaic::write_kernel(const PlannedKernel& planned) {
  const bool backward = planned.kernel.call.backward;
  KernelText out;
  out.text = text_of(planned);
  out.program = program(name_of(planned), arguments_of(planned.shape, backward),
                        outputs_of(planned.shape, backward), out.text);
  return out;
}

Result<MosaicKernel> make_mosaic_kernel(const Request& request,
                                        const Facts& present,
                                        const AttentionCall& call,
                                        const std::string& target,
                                        const MosaicOptions& options) {
  auto planned = mosaic::plan_kernel(request, present, call, target, options);
  if (!planned) return planned.error();
  mosaic::KernelText written = mosaic::write_kernel(*planned);
  MosaicKernel out = std::move(planned->kernel);
  out.text = std::move(written.text);
  out.program = std::move(written.program);
  return out;
}

}  // namespace tessera
