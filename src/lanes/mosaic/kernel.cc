// lanes/mosaic/kernel.cc: from a request to a kernel, its contract and program.
#include "lanes/mosaic/kernel.h"

#include <algorithm>
#include <optional>

#include "base/fail.h"
#include "base/integers.h"
#include "base/text.h"
#include "lanes/lane.h"
#include "lanes/mosaic/backward.h"
#include "lanes/mosaic/forward.h"
#include "lanes/mosaic/kernel_checks.h"
#include "lanes/mosaic/parts.h"
#include "lanes/mosaic/program.h"
#include "lanes/mosaic/rule.h"
#include "lanes/mosaic/telemetry.h"
#include "lanes/mosaic/vector_memory.h"
#include "mask/bind.h"
#include "shard/plan_heads.h"

namespace tessera {
namespace {

using mosaic::KernelShape;
using mosaic::Rule;

// Versions of each kernel's text. The version is part of the kernel contract.
constexpr int64_t kForwardVersion = 3;
// With rounded row sums or queries in strips.
constexpr int64_t kForwardLaterVersion = kForwardVersion + 1;
constexpr int64_t kBackwardVersion = 2;
// With any_numbers and sinks.
constexpr int64_t kBackwardAnySinksVersion = kBackwardVersion + 1;
constexpr int64_t kTelemetryVersion = 1;
constexpr int64_t kMaxBitmapBytes = int64_t{1} << 29;

int64_t version_of(const mosaic::PlannedKernel& planned) {
  const AttentionCall& call = planned.kernel.call;
  if (call.sink_telemetry) return kTelemetryVersion;
  if (!call.backward) {
    const KernelShape& s = planned.shape;
    const bool later = s.rounded_sum || mosaic::strip_queries(s) < s.block_q;
    return later ? kForwardLaterVersion : kForwardVersion;
  }
  const bool any = planned.kernel.options.numbers == Numbers::any;
  return any && call.sink_logits ? kBackwardAnySinksVersion : kBackwardVersion;
}

// Rows of one list, or of a chunk of it, and the most steps of a row. A
// backward row is a column of tiles.
int64_t rows_of_list(const KernelShape& s, bool backward) {
  return backward ? s.columns() : s.rows();
}
int64_t most_of_row(const KernelShape& s, bool backward) {
  return round_up(backward ? s.rows_at_once() : s.columns(), s.tiles_per_pass);
}

// The most steps of a row beyond its tiles: filler adds at most tiles_per_pass
// - 1, and a column without a tile in a chunk has a whole pass.
int64_t padding_of_row(const KernelShape& s) {
  return s.tiles_per_pass - (s.in_chunks() ? 0 : 1);
}

int64_t steps_of(const KernelShape& s, bool backward, int64_t ceiling) {
  const int64_t rows = s.step_lists() * rows_of_list(s, backward);
  const int64_t steps = rows * most_of_row(s, backward);
  if (ceiling == 0) return steps;
  return std::min(steps, ceiling + rows * padding_of_row(s));
}

// Pages begin at multiples of this in HBM, as the compiler's tiles do.
constexpr int64_t kPageStep = 1024;

// Sets pages of whole rows, as many as the longest list may need, if the arrays
// of all steps do not fit scalar memory. Every page but a list's last is too
// full for one more row, so it holds more than `most - row` steps.
Result<void> take_pages(KernelShape& s, bool backward, int64_t ceiling,
                        const MosaicOptions& options, const Target& memory) {
  if (options.page_steps == 0 &&
      mosaic::scalar_words_of(s, backward, memory) <= memory.scalar_words) {
    return {};
  }
  const int64_t rows = rows_of_list(s, backward);
  const int64_t row = most_of_row(s, backward);
  const int64_t most =
      options.page_steps > 0 ? options.page_steps : kMosaicMaxPageSteps;
  if (most < row || most > kMosaicMaxPageSteps) {
    return invalid("mosaic",
                   "steps of a page must be from {}, which a row may have, to "
                   "{}, found {}",
                   row, kMosaicMaxPageSteps, most);
  }
  int64_t list = rows * row;
  if (ceiling > 0) {
    list = std::min(list, ceiling + rows * padding_of_row(s));
  }
  s.pages = ceil_div(list, most - row + 1);
  s.page = round_up(std::min(most, ceil_div(list, s.pages) + row), kPageStep);
  s.steps = s.step_lists() * s.pages * s.page;
  return {};
}

// The number of the plan's heads: one per mask, or per head that picks.
int64_t plan_heads_of(const Request& request, const Facts& present) {
  const auto masks = static_cast<int64_t>(request.masks.size());
  if (!present.picks || !mask::names_of(request).picks) return masks;
  return std::max(masks, present.picks->heads);
}

// Room for a bitmap per step, up to kMaxBitmapBytes.
int64_t bitmaps_of(const KernelShape& s) {
  const int64_t bytes = s.bit_rows() * s.block_q * 4;
  return std::min(mosaic::kFirstBitmap + s.steps, kMaxBitmapBytes / bytes);
}

// The shape without lengths, steps and the way in which legal pairs are given.
Result<KernelShape> shape_of_call(const Tile& tile, int64_t plan_heads,
                                  const AttentionCall& call,
                                  const MosaicOptions& options,
                                  const Target& memory) {
  KernelShape s;
  s.heads = call.shape.heads;
  s.kv_heads = call.shape.kv_heads;
  s.head_dim = call.shape.head_dim;
  s.v_head_dim = call.shape.v_head_dim;
  s.dtype = call.dtype;
  s.block_q = tile.q;
  s.block_kv = tile.kv;
  s.tiles_per_pass = options.tiles_per_pass;
  s.fetch_ahead = options.fetch_ahead;
  s.scale = call.shape.scale_or_default();
  s.softcap = call.shape.softcap;
  s.has_dlse = call.dlse;
  s.has_sinks = call.sink_logits;
  s.telemetry = call.sink_telemetry;
  s.rounded_sum = options.row_sum == RowSum::rounded;
  s.any_numbers = options.numbers == Numbers::any;
  s.chunk_rows = options.query_chunk / tile.q;
  s.plan_heads = plan_heads;
  s.core_bytes = memory.vector_bytes;
  if (s.heads % s.plan_heads != 0) {
    return invalid("mosaic",
                   "heads must be a multiple of the plan's, found {} for {}",
                   s.heads, s.plan_heads);
  }
  return s;
}

// `in_chunks`: chunks are allowed, if nothing else fits or if more heads go
// together with them.
Result<KernelShape> shape_of(const Request& request, const Facts& present,
                             const AttentionCall& call,
                             const MosaicOptions& options, const Target& memory,
                             bool in_chunks) {
  auto found = shape_of_call(request.tile, plan_heads_of(request, present),
                             call, options, memory);
  if (!found) return found;
  KernelShape& s = *found;
  s.batch = bucket(request.batch);
  s.q_len = round_up(bucket(request.q_len), request.tile.q);
  s.kv_len = round_up(bucket(request.kv_len), request.tile.kv);
  std::optional<Rule> rule;
  if (s.plan_heads == 1) rule = mosaic::rule_of(request.masks.front());
  s.has_low = rule && rule->low && !s.telemetry;
  s.has_high = rule && rule->high && !s.telemetry;
  if (auto e = mosaic::check_rows(s); !e) return e.error();
  const bool whole = options.query_chunk >= s.q_len;
  if (whole) s.chunk_rows = 0;
  const int64_t ceiling = request.ceilings.max_steps;
  s.steps = steps_of(s, call.backward, ceiling);
  if (!rule || s.telemetry) s.bitmaps = bitmaps_of(s);
  mosaic::take_heads(s, call.backward, in_chunks && !whole);
  if (s.in_chunks()) s.steps = steps_of(s, call.backward, ceiling);
  return found;
}

// The most steps of a device. Backward each column has a step, padding too.
int64_t shard_ceiling(const KernelShape& s, const Shards& shards,
                      const AttentionCall& call) {
  const int64_t padding = call.backward ? s.lists() * s.columns() : 0;
  return shards.shapes.steps + padding;
}

// For a device where dQ' of all rows, or the sums of keys whose heads take
// turns, do not fit. JAX makes a batch's integers before it knows the call, so
// the chunk is one that fits every call.
void take_shard_chunks(KernelShape& s) {
  KernelShape any = s;
  any.has_dlse = any.has_sinks = true;
  mosaic::take_heads(any, true, true);
  s.heads_per_pass = any.heads_per_pass;
  s.chunk_rows = any.chunk_rows;
}

// The shape for a device's own and received tiles: one batch row, with bitmaps
// for its legal pairs.
Result<KernelShape> shape_of_shard(const Shards& shards,
                                   const AttentionCall& call,
                                   const MosaicOptions& options,
                                   const Target& memory, bool in_parts) {
  auto plan_heads = shard::plan_heads_of_device("mosaic", shards);
  if (!plan_heads) return plan_heads.error();
  auto found = shape_of_call(shards.tile, *plan_heads, call, options, memory);
  if (!found) return found;
  KernelShape& s = *found;
  s.q_len = shards.shapes.rows * s.block_q;
  s.kv_len = shards.shapes.columns * s.block_kv;
  s.wide_sums = call.backward;
  s.in_parts = in_parts;
  if (auto e = mosaic::check_rows(s); !e) return e.error();
  const bool whole = options.query_chunk >= s.q_len;
  if (whole) s.chunk_rows = 0;
  const int64_t ceiling = shard_ceiling(s, shards, call);
  s.steps = steps_of(s, call.backward, ceiling);
  s.bitmaps = bitmaps_of(s);
  mosaic::take_heads(s, call.backward, false);
  // No chunks if dQ of all rows fits, even if they would allow more heads.
  if (call.backward && !whole && !s.in_chunks() && !mosaic::fits(s, true)) {
    take_shard_chunks(s);
    s.steps = steps_of(s, true, ceiling);
  }
  return found;
}

int outputs_of(const KernelShape& s, bool backward) {
  if (s.telemetry) return mosaic::kTelemetryOutputs;
  return backward ? mosaic::backward_outputs(s) : mosaic::forward_outputs(s);
}

}  // namespace

AttentionCall mosaic::telemetry_alone(AttentionCall call) {
  call = lanes::one_direction(call, false);
  call.sink_logits = false;  // the host adds them to the kernel's results
  call.sink_telemetry = true;
  return call;
}

std::string mosaic::direction_of(const AttentionCall& call) {
  return call.sink_telemetry ? "sinks" : call.backward ? "backward" : "forward";
}

KernelContract mosaic::contract_of(const PlannedKernel& planned,
                                   const std::string& target,
                                   const std::string& sharding) {
  const MosaicKernel& kernel = planned.kernel;
  const bool backward = kernel.call.backward;
  KernelChoice choice;
  choice.lane = "mosaic";
  choice.target = target;
  choice.direction = direction_of(kernel.call);
  choice.dtype = to_string(kernel.call.dtype);
  choice.sharding = sharding;
  choice.shape = kernel.call.shape;
  choice.parameters = {{"tiles_per_pass", kernel.options.tiles_per_pass},
                       {"fetch_ahead", kernel.options.fetch_ahead},
                       {"kernel_version", version_of(planned)}};
  if (backward) {
    choice.parameters["dlse"] = kernel.call.dlse;
  } else if (!kernel.call.sink_telemetry) {
    choice.parameters["row_sum_rounded"] =
        kernel.options.row_sum == RowSum::rounded;
  }
  if (!kernel.call.sink_telemetry) {
    choice.parameters["any_numbers"] = kernel.options.numbers == Numbers::any;
  }
  choice.parameters["heads_per_pass"] = kernel.heads_per_pass;
  if (kernel.bitmaps > 0) choice.parameters["bitmaps"] = kernel.bitmaps;
  if (kernel.page > 0) choice.parameters["page"] = kernel.page;
  // A term of its own: kernels with pages of one size may differ in steps, and
  // an open ceiling has the same plan contract as a ceiling of as many steps.
  choice.parameters["steps"] = kernel.steps;
  if (kernel.query_chunk > 0) {
    choice.parameters["query_chunk"] = kernel.query_chunk;
  }
  if (kernel.call.sink_logits) choice.parameters["sink_logits"] = true;
  if (kernel.tokens_last) choice.parameters["tokens_last"] = true;
  if (planned.shape.wide_sums) choice.parameters["wide_sums"] = true;
  if (planned.shape.in_parts) choice.parameters["in_parts"] = true;
  choice.lowering_reason = kernel.lowering.reason;
  return make_kernel_contract(kernel.plan, choice);
}

namespace {

Result<mosaic::PlannedKernel> kernel_of_shape(const KernelShape& shape,
                                              const mosaic::AskedTarget& asked,
                                              PlanContract plan,
                                              const Request& request,
                                              const AttentionCall& call,
                                              const MosaicOptions& options) {
  if (auto e = mosaic::check_sizes(shape, call.backward, asked.memory); !e) {
    return e.error();
  }
  const std::vector<mosaic::Argument> arguments =
      mosaic::arguments_of(shape, call.backward);
  mosaic::PlannedKernel out;
  out.shape = shape;
  MosaicKernel& k = out.kernel;
  k.vector_bytes = mosaic::vector_bytes(arguments);
  if (auto e =
          mosaic::check_vector_memory(k.vector_bytes, shape, call.backward);
      !e) {
    return e.error();
  }
  k.scalar_words = mosaic::scalar_words_of(arguments);
  k.plan = std::move(plan);
  k.batch = shape.batch;
  k.q_len = shape.q_len;
  k.kv_len = shape.kv_len;
  k.steps = shape.steps;
  k.page = shape.page;
  k.query_chunk = shape.chunk_rows * shape.block_q;
  k.tile = request.tile;
  k.lowering = asked.lowering;
  k.options = options;
  k.call = call;
  k.mask = mosaic::mask_text(request);
  k.plan_heads = shape.plan_heads;
  k.bitmaps = shape.bitmaps;
  k.heads_per_pass = shape.heads_per_pass;
  k.tokens_last = mosaic::tokens_last(shape.head_dim) ||
                  mosaic::tokens_last(shape.v_head_dim);
  return out;
}

}  // namespace

Result<mosaic::PlannedKernel> mosaic::plan_kernel(
    const Request& request, const Facts& present, const AttentionCall& call,
    const std::string& target, const MosaicOptions& options) {
  auto plan = make_ceiling_contract(request, present);
  if (!plan) return plan.error();
  auto asked = check_asked(call, options, request, target);
  if (!asked) return asked.error();
  auto shape =
      shape_of(request, present, call, options, asked->memory, call.backward);
  if (!shape) return shape.error();
  if (auto e = take_pages(*shape, call.backward, request.ceilings.max_steps,
                          options, asked->memory);
      !e) {
    return e.error();
  }
  auto out =
      kernel_of_shape(*shape, *asked, std::move(*plan), request, call, options);
  if (out) out->kernel.contract = contract_of(*out, target);
  return out;
}

bool mosaic::fits_vector_memory(const Request& request, const Facts& present,
                                const AttentionCall& call,
                                const std::string& target,
                                const MosaicOptions& options, bool in_chunks) {
  auto asked = check_asked(call, options, request, target);
  if (!asked) return true;
  auto shape = shape_of(request, present, call, options, asked->memory,
                        in_chunks && call.backward);
  return shape && mosaic::fits(*shape, call.backward);
}

int64_t mosaic::query_chunk_of(const Request& request, const Facts& present,
                               const AttentionCall& call,
                               const std::string& target,
                               const MosaicOptions& options) {
  auto asked = check_asked(call, options, request, target);
  if (!asked) return 0;
  auto shape = shape_of(request, present, call, options, asked->memory, true);
  return shape ? shape->chunk_rows * shape->block_q : 0;
}

Result<mosaic::PlannedKernel> mosaic::plan_shard_kernel(
    const Batch& batch, const Shards& shards, const AttentionCall& call,
    const std::string& target, const MosaicOptions& options, bool in_parts) {
  AttentionCall own = call;
  own.shape.heads = shards.shapes.heads;
  own.shape.kv_heads = shards.shapes.kv_heads;
  auto asked = check_asked(own, options, batch.request(), target);
  if (!asked) return asked.error();
  auto shape = shape_of_shard(shards, own, options, asked->memory, in_parts);
  if (!shape) return shape.error();
  const int64_t ceiling = shard_ceiling(*shape, shards, own);
  if (auto e =
          take_pages(*shape, call.backward, ceiling, options, asked->memory);
      !e) {
    return e.error();
  }
  // The contract of the shards replaces that of the plan.
  return kernel_of_shape(
      *shape, *asked,
      {shards.contract_key, shards.contract_text, {}, 0, 0, {}, {}},
      batch.request(), own, options);
}

VectorMemory vector_memory(const MosaicKernel& kernel) {
  const auto chip = find_target(kernel.lowering.chip);
  const int64_t core = chip ? chip->vector_bytes : 0;
  return {kernel.vector_bytes, mosaic::vector_room(core, kernel.call.backward),
          mosaic::vector_rooms(core).program};
}

std::string_view to_string(RowSum row_sum) {
  return row_sum == RowSum::exact ? "exact" : "rounded";
}

Result<RowSum> parse_row_sum(std::string_view text, std::string_view name) {
  for (const RowSum s : {RowSum::exact, RowSum::rounded}) {
    if (text == to_string(s)) return s;
  }
  return invalid("mosaic", "{} must be exact or rounded, found {}", name,
                 in_quotes(text));
}

std::string_view to_string(Numbers numbers) {
  return numbers == Numbers::finite ? "finite" : "any";
}

Result<Numbers> parse_numbers(std::string_view text, std::string_view name) {
  for (const Numbers n : {Numbers::finite, Numbers::any}) {
    if (text == to_string(n)) return n;
  }
  return invalid("mosaic", "{} must be finite or any, found {}", name,
                 in_quotes(text));
}

std::string_view mosaic::name_of(const PlannedKernel& planned) {
  if (planned.shape.telemetry) return "tessera_sinks";
  return planned.kernel.call.backward ? "tessera_backward" : "tessera_forward";
}

std::string mosaic::text_of(const PlannedKernel& planned) {
  if (planned.shape.telemetry) return telemetry_kernel(planned.shape);
  return planned.kernel.call.backward ? backward_kernel(planned.shape)
                                      : forward_kernel(planned.shape);
}

mosaic::CallArrays mosaic::operands_of(const PlannedKernel& planned) {
  const bool backward = planned.kernel.call.backward;
  return call_arrays(mosaic::arguments_of(planned.shape, backward),
                     outputs_of(planned.shape, backward));
}

mosaic::CallArrays mosaic::arrays_of(const PlannedKernel& planned) {
  CallArrays out = operands_of(planned);
  for (Argument& a : out.inputs) a = with_dim_last(std::move(a));
  for (Argument& a : out.results) a = with_dim_last(std::move(a));
  return out;
}

mosaic::KernelText mosaic::write_kernel(const PlannedKernel& planned) {
  const bool backward = planned.kernel.call.backward;
  const int64_t room = vector_rooms(planned.shape.core_bytes).program;
  KernelText out;
  out.text = text_of(planned);
  out.program_text =
      program(name_of(planned), mosaic::arguments_of(planned.shape, backward),
              outputs_of(planned.shape, backward), out.text, room);
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
  std::string config = mosaic::backend_config(
      mosaic::operands_of(*planned), written.text,
      mosaic::vector_rooms(planned->shape.core_bytes).program);
  MosaicKernel out = std::move(planned->kernel);
  out.text = std::move(written.text);
  out.backend_config = std::move(config);
  out.program_text = std::move(written.program_text);
  return out;
}

}  // namespace tessera
