// lanes/mosaic/arrays.cc: makes the arrays that the kernel reads for a batch.
#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/fail.h"
#include "base/integers.h"
#include "lanes/mosaic/array_check.h"
#include "lanes/mosaic/kernel_steps.h"
#include "lanes/mosaic/rule.h"
#include "lanes/mosaic/shape.h"
#include "lanes/mosaic/tile_bits.h"
#include "lanes/mosaic/token_ids.h"
#include "plan/batch_state.h"
#include "tessera/mosaic.h"

namespace tessera {
namespace {

using mosaic::KeyIds;
using mosaic::kNoKey;
using mosaic::kNotThere;
using mosaic::Rule;

// Clamps bounds to what pairs of this batch can reach, so that the kernel's
// sums with them stay within 32 bits.
Result<std::array<int32_t, 2>> reachable_bounds(const mask::Bound& bound,
                                                const Rule& rule,
                                                const MosaicKernel& kernel) {
  int64_t least = 0, most = 0;  // positions, including those of padding
  for (const mask::BoundRow& row : bound.rows) {
    least = std::min(least, row.q_offset);
    most = std::max(most, row.q_offset + kernel.q_len);
  }
  const int64_t low = std::max(rule.low.value_or(0), -most);
  const int64_t high = std::min(rule.high.value_or(0), kernel.kv_len - least);
  if (least + low < INT32_MIN || most + high > INT32_MAX) {
    return over_limit("mosaic",
                      "positions and window bounds must add up within 32 bits, "
                      "found positions {} to {} for bounds {} and {}",
                      least, most, low, high);
  }
  return std::array{static_cast<int32_t>(low), static_cast<int32_t>(high)};
}

Result<void> check_mask_and_bytes(const Request& request,
                                  const MosaicKernel& kernel) {
  if (const std::string mask = mosaic::mask_text(request);
      mask != kernel.mask) {
    return invalid("mosaic", "the mask must be the kernel's {}, found {}",
                   kernel.mask, mask);
  }
  const int64_t bytes =
      4 * (kernel.steps + kernel.batch * (kernel.q_len + kernel.kv_len)) +
      kernel.bitmaps * kernel.tile.q * kernel.tile.kv / 8;
  if (bytes > kMaxLayoutBytes) {
    return over_limit("mosaic",
                      "a batch's arrays must be at most {} bytes, "
                      "found {}",
                      kMaxLayoutBytes, bytes);
  }
  return {};
}

}  // namespace

Result<MosaicArrays> make_mosaic_arrays(const Batch& batch,
                                        const MosaicKernel& kernel) {
  auto read = plan::read_batch(batch, "mosaic");
  if (!read) return read.error();
  const mask::Bound& bound = (*read)->sweep.bound;
  auto steps = mosaic::kernel_steps(bound, (*read)->plan, kernel);
  if (!steps) return steps.error();
  if (auto e = check_mask_and_bytes((*read)->request, kernel); !e) {
    return e.error();
  }
  // With bitmaps, ids only say what vetoes take.
  std::optional<Rule> known = Rule();
  if (kernel.bitmaps == 0) known = mosaic::rule_of(*bound.masks.front());
  if (!known || (kernel.bitmaps == 0 && bound.heads > 1)) {
    return invalid("mosaic",
                   "a kernel must have bitmaps for such a mask, found none for "
                   "{}",
                   kernel.mask);
  }
  const Rule& rule = *known;
  auto bounds = reachable_bounds(bound, rule, kernel);
  if (!bounds) return bounds.error();

  MosaicArrays out;
  if (kernel.bitmaps > 0) {
    auto bits = mosaic::make_tile_bits(**read, *steps, kernel);
    if (!bits) return bits.error();
    out.bits_of = std::move(bits->of_step);
    out.bits = std::move(bits->words);
  }
  if (auto e = mosaic::place_steps(*steps, kernel, out); !e) return e.error();
  out.bounds.assign(bounds->begin(), bounds->end());
  out.bounds.resize(static_cast<size_t>(kernel.batch) + 2, 0);
  out.q_ids.assign(static_cast<size_t>(kernel.batch * kernel.q_len), kNotThere);
  out.kv_ids.assign(static_cast<size_t>(kernel.batch * kernel.kv_len), kNoKey);
  for (int64_t b = 0; b < bound.batch; ++b) {
    const mask::BoundRow row = mosaic::veto_row((*read)->request, bound, b);
    out.bounds[static_cast<size_t>(b) + 2] = static_cast<int32_t>(row.q_offset);
    const auto part = [b](std::vector<int32_t>& ids, int64_t room, int64_t n) {
      return std::span(ids).subspan(static_cast<size_t>(b * room),
                                    static_cast<size_t>(n));
    };
    const KeyIds ids(bound, row, rule,
                     part(out.kv_ids, kernel.kv_len, bound.kv_len));
    ids.queries(0, part(out.q_ids, kernel.q_len, bound.q_len));
  }
  return out;
}

std::vector<MosaicArray> named_arrays(const MosaicKernel& k, MosaicArrays a) {
  const std::pair<std::string_view, std::vector<int32_t>*> all[] = {
      {"steps", &a.steps},     {"range", &a.range}, {"bounds", &a.bounds},
      {"bits_of", &a.bits_of}, {"q_ids", &a.q_ids}, {"kv_ids", &a.kv_ids},
      {"bits", &a.bits}};
  std::vector<MosaicArray> out;
  for (mosaic::ArrayShape& s : mosaic::array_shapes(k)) {
    const auto found = std::ranges::find(
        all, s.name, [](const auto& array) { return array.first; });
    out.push_back({s.name, std::move(s.shape), std::move(*found->second)});
  }
  return out;
}

}  // namespace tessera
