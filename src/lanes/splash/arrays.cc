// lanes/splash/arrays.cc: makes MaskInfo, and finds live queries and keys.
#include "lanes/splash/arrays.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/fail.h"
#include "plan/splash_run.h"

namespace tessera::splash {
namespace {

constexpr std::string_view kWhere = "splash";

size_t index(int64_t i) { return static_cast<size_t>(i); }

Result<void> check_ceilings(const SplashMaskInfo& info,
                            const BridgeSplash& kernel) {
  const int64_t width = info.block_mask.shape[2];
  if (width > kernel.width) {
    return over_limit(kWhere,
                      "a row of tiles must fit the {} of the artifact, found "
                      "{}",
                      kernel.width, width);
  }
  const int64_t blocks =
      info.partial_mask_blocks ? info.partial_mask_blocks->shape[0] : 0;
  if (blocks > kernel.blocks) {
    return over_limit(kWhere,
                      "distinct partial tiles must fit the {} of the artifact, "
                      "found {}",
                      kernel.blocks, blocks);
  }
  const int64_t heads = info.block_mask.shape[0];
  if (heads > kernel.mask_heads) {
    return invalid(kWhere,
                   "heads must have one mask, as the artifact has it, found {}",
                   heads);
  }
  return {};
}

// Copies the first part, of `size` elements, to all other parts.
template <class T>
void repeat(std::vector<T>& parts, int64_t size) {
  for (size_t at = index(size); at < parts.size(); at += index(size)) {
    std::copy_n(parts.begin(), size,
                parts.begin() + static_cast<std::ptrdiff_t>(at));
  }
}

// The numbers of a grid array, repeated for each of the kernel's masks.
std::vector<int32_t> for_masks(const SplashArray& from, int64_t masks) {
  const int64_t heads = from.shape[0];
  std::vector<int32_t> out(index(from.size() / heads * masks));
  std::memcpy(out.data(), from.bytes.data(), from.bytes.size());
  if (heads == 1) repeat(out, from.size());
  return out;
}

// By distinct partial tile: which of its queries and keys have a legal pair.
struct Sides {
  std::vector<uint8_t> queries, keys;
};
Sides sides_of(const RowArrays& rows, const BridgeSplash& k) {
  Sides out;
  out.queries.assign(index(k.blocks * k.block_q), 0);
  out.keys.assign(index(k.blocks * k.block_kv), 0);
  const uint8_t* pair = rows.mask_blocks.data();
  for (int64_t b = 0; b < k.blocks; ++b) {
    for (int64_t i = 0; i < k.block_q; ++i) {
      for (int64_t j = 0; j < k.block_kv; ++j, ++pair) {
        out.queries[index(b * k.block_q + i)] |= *pair;
        out.keys[index(b * k.block_kv + j)] |= *pair;
      }
    }
  }
  return out;
}

void mark(const uint8_t* from, int64_t count, bool all, uint8_t* to) {
  for (int64_t i = 0; i < count; ++i) to[i] |= all ? 1 : from[i];
}

void find_live(const BridgeSplash& k, RowArrays& out) {
  const Sides sides = sides_of(out, k);
  const AttentionShape& s = k.shape;
  out.live_queries.assign(index(s.heads * k.q_len), 0);
  out.live_keys.assign(index(s.kv_heads * k.kv_len), 0);
  const int64_t cells = k.q_len / k.block_q * k.width;
  for (int64_t h = 0; h < k.mask_heads; ++h) {
    uint8_t* const queries = out.live_queries.data() + h * k.q_len;
    uint8_t* const keys =
        out.live_keys.data() + h / (s.heads / s.kv_heads) * k.kv_len;
    for (int64_t cell = 0; cell < cells; ++cell) {
      const size_t at = index(h * cells + cell);
      if (out.block_mask[at] == 0) continue;
      const bool full = out.block_mask[at] == 2;
      const int64_t block = full ? 0 : out.mask_next[at];
      mark(sides.queries.data() + block * k.block_q, k.block_q, full,
           queries + cell / k.width * k.block_q);
      mark(sides.keys.data() + block * k.block_kv, k.block_kv, full,
           keys + out.data_next[at] * k.block_kv);
    }
  }
  if (k.mask_heads > 1) return;
  repeat(out.live_queries, k.q_len);
  repeat(out.live_keys, k.kv_len);
}

}  // namespace

Result<SplashMaskInfo> make_info(const Batch& batch, int64_t batch_row,
                                 const BridgeSplash& kernel) {
  SplashOptions options;
  options.downcast = false;
  options.heads = kernel.shape.heads;
  auto info = make_splash(batch, batch_row, options);
  if (!info) return info.error();
  if (auto ok = check_ceilings(*info, kernel); !ok) return ok.error();
  return info;
}

RowArrays make_arrays(SplashMaskInfo info, const BridgeSplash& kernel) {
  info = plan::widen_splash(std::move(info), {kernel.block_q, kernel.block_kv},
                            false, kernel.width, kernel.blocks);
  RowArrays out;
  out.data_next = for_masks(info.data_next, kernel.mask_heads);
  out.mask_next = for_masks(*info.mask_next, kernel.mask_heads);
  out.block_mask = for_masks(info.block_mask, kernel.mask_heads);
  out.mask_blocks = std::move(info.partial_mask_blocks->bytes);
  find_live(kernel, out);
  return out;
}

}  // namespace tessera::splash
