// lanes/mosaic/array_check.cc: what a kernel's arrays of integers must be, and
// digests that recognize arrays which were stored elsewhere.
#include "lanes/mosaic/array_check.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <string>

#include "base/digest.h"
#include "base/fail.h"
#include "base/text.h"
#include "lanes/mosaic/kernel_steps.h"
#include "lanes/mosaic/shape.h"

namespace tessera {
namespace {

constexpr size_t kDigestWords = 4;

// The digest covers what the array is for (contract, direction, passes), its
// name, shape and values.
void add_digest(const MosaicKernel& kernel, const MosaicArrayView& array,
                std::vector<int32_t>& out) {
  Digest digest;
  digest.add_text(kernel.plan.key);
  digest.add(int64_t{kernel.call.backward});
  digest.add(kernel.options.tiles_per_pass);
  if (kernel.query_chunk > 0) digest.add(kernel.query_chunk);
  digest.add_text(array.name);
  for (const int64_t n : array.shape) digest.add(n);
  digest.add(array.values.data(), array.values.size_bytes());
  const std::string hex = digest.hex();
  for (size_t i = 0; i < kDigestWords; ++i) {
    const char* const at = hex.data() + 8 * i;
    uint32_t word = 0;
    std::from_chars(at, at + 8, word, 16);
    out.push_back(static_cast<int32_t>(word));
  }
}

Result<void> check_shape(const mosaic::ArrayShape& due,
                         const MosaicArrayView& array) {
  if (array.name != due.name) {
    return invalid("mosaic", "an array must be {} here, found {}", due.name,
                   in_quotes(array.name));
  }
  if (std::ranges::equal(array.shape, due.shape)) return {};
  return invalid("mosaic", "{} must have the kernel's shape [{}], found [{}]",
                 due.name, fmt::join(due.shape, ", "),
                 fmt::join(array.shape, ", "));
}

}  // namespace

std::vector<mosaic::ArrayShape> mosaic::array_shapes(const MosaicKernel& k) {
  const int64_t lists = step_lists(k);
  int64_t range = k.page == 0 ? lists + 1 : lists * (pages_of_list(k) + 1);
  if (k.query_chunk > 0) range += lists * kChunkWords;
  std::vector<ArrayShape> out = {{"steps", {k.steps}},
                                 {"range", {range}},
                                 {"bounds", {kBoundsHead + k.batch}}};
  if (k.bitmaps > 0) out.push_back({"bits_of", {k.steps}});
  out.push_back({"q_ids", {k.batch, k.q_len / kLanes, kLanes}});
  out.push_back({"kv_ids", {k.batch, k.kv_len / kLanes, kLanes}});
  if (k.bitmaps > 0) {
    KernelShape s;
    s.block_kv = k.tile.kv;
    out.push_back({"bits", {k.bitmaps, s.bit_rows(), k.tile.q}});
  }
  return out;
}

MosaicArrayView view_of(const MosaicArray& array) {
  return {array.name, array.shape, array.values};
}

std::vector<int32_t> mosaic_digests(const MosaicKernel& kernel,
                                    std::span<const MosaicArrayView> arrays) {
  std::vector<int32_t> out;
  for (const MosaicArrayView& array : arrays) add_digest(kernel, array, out);
  return out;
}

Result<void> check_mosaic_arrays(const MosaicKernel& kernel,
                                 std::span<const MosaicArrayView> arrays,
                                 std::span<const int32_t> digests) {
  const std::vector<mosaic::ArrayShape> due = mosaic::array_shapes(kernel);
  if (arrays.size() != due.size()) {
    return invalid("mosaic", "the kernel takes {} arrays of integers, found {}",
                   due.size(), arrays.size());
  }
  if (digests.size() != kDigestWords * due.size()) {
    return invalid("mosaic",
                   "{} arrays must have {} words of digests, found {}",
                   due.size(), kDigestWords * due.size(), digests.size());
  }
  for (size_t i = 0; i < due.size(); ++i) {
    if (auto e = check_shape(due[i], arrays[i]); !e) return e;
    std::vector<int32_t> own;
    add_digest(kernel, arrays[i], own);
    const auto given = digests.subspan(kDigestWords * i, kDigestWords);
    if (std::ranges::equal(own, given)) continue;
    return invalid("mosaic",
                   "{} must be as it was made for this kernel, found other "
                   "values",
                   due[i].name);
  }
  return {};
}

}  // namespace tessera
