// fit/xla_pass.cc: the memory of the xla lane's programs.
//
// Arguments and results are the program's own. Scratch is what libtpu's buffer
// assignment showed (XLA_FLAGS=--xla_dump_to), named as in the program's text:
//   - forward, the float32 sum of a row of tiles, carried from tile to tile;
//   - backward, the float32 sums of dK and dV over all keys, to which rows add
//     and which are converted at the end; also a row of dQ, and what a tile
//     adds to dK and dV;
//   - counters, flags and tables of the loops, 16 KiB each with their padding.
// A tile of `chunked` has all queries. `dense` has one tile, whose scores take
// most of its memory; its sums are in no loop, and may stay in the core.
// Scores and other values of a tile lie in the core's memory, or in HBM if they
// are large. An array that is small enough for the core is marked so: the
// compiler may put it there, by a search whose result is not known in advance.
#include <algorithm>
#include <optional>

#include "base/fail.h"
#include "fit/parts.h"
#include "lanes/tensors.h"
#include "lanes/xla/planned.h"
#include "mask/bind.h"
#include "tessera/layouts.h"

namespace tessera::fit {
namespace {

using xla::Dims;
using xla::Shape;

// Counters of 16 KiB: at most 45 were seen forward and 56 backward.
constexpr int64_t kForwardCounters = int64_t{48} << 14;
constexpr int64_t kBackwardCounters = int64_t{60} << 14;

Result<void> check(const FitCall& asked) {
  const Request& r = asked.request;
  auto heads = static_cast<int64_t>(r.masks.size());
  if (mask::names_of(r).picks) {
    const auto& picks = asked.present.picks;
    if (!picks || picks->heads < 1 || picks->k < 1) {
      return invalid("fit", "picks must have heads and slots, found none");
    }
    heads = std::max(heads, picks->heads);
  }
  auto ok =
      lanes::check_call("fit", {r.batch, r.q_len, r.kv_len, heads}, asked.call);
  if (!ok) return ok;
  const int64_t most = std::max(r.q_len / r.tile.q, r.kv_len / r.tile.kv);
  if (most < kMaxStepRows) return {};
  return over_limit("fit",
                    "a worklist has at most {} tile rows or columns, found "
                    "more for tile {}x{} (use a larger tile)",
                    kMaxStepRows, r.tile.q, r.tile.kv);
}

}  // namespace

Result<xla::Shape> xla_shape(const FitCall& asked, bool backward) {
  auto contract = make_ceiling_contract(asked.request, asked.present);
  if (!contract) return contract.error();
  auto planned =
      xla::plan_call(asked.request, asked.present, std::move(*contract),
                     asked.call, backward, asked.method, {asked.chip});
  if (!planned) return planned.error();
  return std::move(planned->shape);
}

namespace {

Result<void> add_array(std::vector<MemoryPart>& to, const std::string& name,
                       MemoryKind kind, xla::Element element,
                       const Dims& dims) {
  auto part = part_of(name, kind, xla::dtype_of(element), dims);
  if (!part) return part.error();
  to.push_back(std::move(*part));
  return {};
}

std::vector<xla::Argument> results_of(const Shape& s) {
  const Dims queries = {s.batch, s.heads, s.q_len, s.head_dim};
  const Dims keys = {s.batch, s.kv_heads, s.kv_len, s.head_dim};
  const Dims values = {s.batch, s.kv_heads, s.kv_len, s.v_head_dim};
  std::vector<xla::Argument> out;
  if (s.backward) {
    out = {{"dq", {s.element, queries}},
           {"dk", {s.element, keys}},
           {"dv", {s.element, values}}};
    if (s.sink_logits) {
      out.push_back({"dsink_logits", {xla::Element::f32, {s.heads}}});
    }
  } else {
    out = {{"out", {s.element, {s.batch, s.heads, s.q_len, s.v_head_dim}}},
           {"lse", {xla::Element::f32, {s.batch, s.heads, s.q_len}}}};
  }
  out.push_back({"tiles", {xla::Element::i32, {}}});
  return out;
}

// Float32 scratch of the program, and whether it may lie in the core's memory.
struct Scratch {
  const char* name;
  std::vector<Dims> arrays;
  bool core = false;
};

std::vector<Scratch> sums_of(const Shape& s) {
  const int64_t kv = s.unit_kv_heads();
  const int64_t group = s.unit_group();
  const Dims out = {kv, group, s.block_q(), s.v_head_dim};
  if (!s.backward) return {{"sum of a row of out", {out}}};
  std::vector<Scratch> sums;
  // Float32 sums of all keys are the results themselves if the arrays are
  // float32; on a mesh they are counted with what goes home.
  if (s.element != xla::Element::f32 && !s.numbered) {
    sums = {
        {"sum of dk", {{s.batch, s.kv_heads, s.kv_len, s.head_dim}}, true},
        {"sum of dv", {{s.batch, s.kv_heads, s.kv_len, s.v_head_dim}}, true}};
  }
  sums.push_back(
      {"sum of a row of dq", {{kv, group, s.block_q(), s.head_dim}}});
  sums.push_back(
      {"a tile's dk and dv",
       {{kv, s.block_kv(), s.head_dim}, {kv, s.block_kv(), s.v_head_dim}},
       true});
  return sums;
}

int64_t bytes_of(xla::Element element, const Dims& dims) {
  return device_bytes(xla::dtype_of(element), dims);
}

// The most copies at one time, as the buffer assignments showed: of scores, in
// halves of a float32 copy, and of rows in float32. Products of bf16 take
// rounded scores; those of f16 take float32 copies of the rest too.
struct Copies {
  int64_t half_scores, rows;
};
Copies copies_of(const Shape& s) {
  if (s.method == XlaMethod::dense) {
    const bool half = s.element == xla::Element::f16;
    if (s.element == xla::Element::bf16) return {s.backward ? 4 : 3, 0};
    return {s.backward ? 6 : 4, half ? 1 : 0};
  }
  switch (s.element) {
    case xla::Element::bf16:
      return s.backward ? Copies{4, 1} : Copies{3, 0};
    case xla::Element::f16:
      return s.backward ? Copies{12, 3} : Copies{8, 2};
    default:
      return s.backward ? Copies{4, 2} : Copies{4, 0};
  }
}

// What one tile needs at a time beside the sums: scores, probabilities, rows.
// Nothing if half of the core's memory holds them: they then always lay there.
Result<std::optional<MemoryPart>> tile_values(const Shape& s,
                                              const Chip& chip) {
  constexpr auto kF32 = xla::Element::f32;
  const int64_t kv = s.unit_kv_heads();
  const int64_t group = s.unit_group();
  const Dims q = {kv, group, s.block_q(), s.head_dim};
  const Dims out = {kv, group, s.block_q(), s.v_head_dim};
  const Dims scores = {kv, group, s.block_q(), s.block_kv()};
  constexpr const char* kName = "a tile's scores and rows";
  for (const Dims& dims : {q, out, scores}) {
    if (auto e = check_size(kName, Dtype::f32, dims); !e) return e.error();
  }
  const int64_t score_bytes = bytes_of(kF32, scores);
  const int64_t row_bytes = bytes_of(kF32, q) + bytes_of(kF32, out);
  if (4 * score_bytes + row_bytes <= chip.core / 2) {
    return std::optional<MemoryPart>();
  }
  MemoryPart part{kName, MemoryKind::scratch};
  part.core = chip.core > 0;
  // One float32 copy of the scores always existed.
  part.least = std::max<int64_t>(0, score_bytes - chip.core);
  const int64_t rows = bytes_of(s.element, q) + bytes_of(s.element, out) +
                       bytes_of(s.element, {kv, s.block_kv(), s.head_dim});
  const int64_t legal = s.block_q() * s.block_kv();
  const Copies most = copies_of(s);
  part.bytes =
      most.half_scores * score_bytes / 2 + legal + most.rows * row_bytes + rows;
  return std::optional(part);
}

}  // namespace

Result<std::vector<MemoryPart>> xla_scratch(const Shape& s, const Chip& chip) {
  std::vector<MemoryPart> out;
  for (const Scratch& sum : sums_of(s)) {
    MemoryPart part{sum.name, MemoryKind::scratch};
    for (const Dims& dims : sum.arrays) {
      if (auto e = check_size(sum.name, Dtype::f32, dims); !e) return e.error();
      part.bytes += bytes_of(xla::Element::f32, dims);
    }
    part.core =
        (sum.core || s.method == XlaMethod::dense) && part.bytes <= chip.core;
    part.least = part.core ? 0 : part.bytes;
    out.push_back(std::move(part));
  }
  auto values = tile_values(s, chip);
  if (!values) return values.error();
  if (*values) out.push_back(std::move(**values));
  out.push_back({"counters", MemoryKind::scratch,
                 s.backward ? kBackwardCounters : kForwardCounters});
  return out;
}

Result<PassMemory> xla_pass(const FitCall& asked, const Chip& chip,
                            bool backward) {
  if (auto e = check(asked); !e) return e.error();
  auto shape = xla_shape(asked, backward);
  if (!shape) return shape.error();
  auto lowering = xla::lower_on(*shape, chip, asked.mosaic.lowering_reason);
  if (!lowering) return lowering.error();
  PassMemory out;
  out.backward = backward;
  for (const xla::Argument& a : xla::arguments_of(*shape)) {
    auto e = add_array(out.arguments, a.name, kind_of(a.name), a.type.element,
                       a.type.dims);
    if (!e) return e.error();
  }
  for (const xla::Argument& a : results_of(*shape)) {
    auto e = add_array(out.outputs, a.name, kind_of(a.name), a.type.element,
                       a.type.dims);
    if (!e) return e.error();
  }
  out.outputs.push_back(table_of(chip, out.outputs.size()));
  auto scratch = xla_scratch(*shape, chip);
  if (!scratch) return scratch.error();
  out.scratch = std::move(*scratch);
  return out;
}

}  // namespace tessera::fit
