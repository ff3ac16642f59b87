// lanes/mosaic/array_check_test.cc: arrays that are not the kernel's are
// refused, with the array's name.
#include "lanes/mosaic/array_check.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tessera::mosaic {
namespace {

struct Arrays {
  MosaicKernel kernel;
  std::vector<MosaicArray> arrays;

  Arrays(const char* mask, int64_t tokens, int64_t tiles, bool backward,
         int32_t documents = 3) {
    Request request;
    request.masks = {*parse_mask(mask)};
    request.q_len = request.kv_len = tokens;
    request.tile = {256, 256};
    request.ceilings.max_steps = 64;
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < tokens; ++i) {
      ids.push_back(static_cast<int32_t>(i * documents / tokens));
    }
    Facts facts;
    facts.doc_ids = Ints(ids);
    AttentionCall call;
    call.shape = {2, 1, 128, 128, {}, 0};
    call.dtype = Dtype::bf16;
    call.backward = backward;
    kernel = *make_mosaic_kernel(request, facts, call, "v6e", {tiles, 1});
    const auto batch = BorrowedBatch::make(request, facts);
    arrays = named_arrays(kernel, *make_mosaic_arrays(*batch, kernel));
  }
  std::vector<MosaicArrayView> views() const {
    std::vector<MosaicArrayView> out;
    for (const MosaicArray& a : arrays) out.push_back(view_of(a));
    return out;
  }
  std::vector<int32_t> digests() const {
    return mosaic_digests(kernel, views());
  }
};

std::string why(const MosaicKernel& kernel, const Arrays& of,
                const std::vector<int32_t>& digests) {
  const auto checked = check_mosaic_arrays(kernel, of.views(), digests);
  return checked ? std::string() : checked.error().message;
}

std::string changed(std::string_view name) {
  return "[mosaic] " + std::string(name) +
         " must be as it was made for this kernel, found other values";
}

TEST(MosaicArrayCheck, NamesWhatWasChanged) {
  for (const char* mask : {"causal & documents", "documents | sink(4)"}) {
    for (const bool backward : {false, true}) {
      Arrays a(mask, 1000, 2, backward);
      const std::vector<int32_t> digests = a.digests();
      EXPECT_EQ(why(a.kernel, a, digests), "");
      EXPECT_EQ(a.arrays.size(), a.kernel.bitmaps > 0 ? 7U : 5U);
      for (MosaicArray& array : a.arrays) {
        for (const size_t at : {size_t{0}, array.values.size() - 1}) {
          array.values[at] ^= 1 << 20;
          EXPECT_EQ(why(a.kernel, a, digests), changed(array.name));
          array.values[at] ^= 1 << 20;
        }
      }
    }
  }
}

TEST(MosaicArrayCheck, ForeignArraysAreRefused) {
  const Arrays own("causal & documents", 1000, 2, false);
  // All arrays of another batch are accepted; its ids with this batch's list
  // are not.
  const Arrays other("causal & documents", 990, 2, false, 5);
  EXPECT_EQ(why(own.kernel, other, other.digests()), "");
  Arrays mixed = own;
  mixed.arrays[3] = other.arrays[3];
  EXPECT_EQ(why(own.kernel, mixed, own.digests()), changed("q_ids"));
  // Arrays of the same shapes that were made for another kernel.
  for (const Arrays& a : {Arrays("causal & documents", 1000, 1, false),
                          Arrays("causal & documents", 1000, 2, true),
                          Arrays("documents", 1000, 2, false)}) {
    Arrays fitted = a;
    fitted.arrays[0].values.resize(own.arrays[0].values.size());
    fitted.arrays[0].shape = own.arrays[0].shape;
    EXPECT_EQ(why(own.kernel, fitted, fitted.digests()), changed("steps"));
  }
  const Arrays longer("causal & documents", 2000, 2, false);
  EXPECT_EQ(why(own.kernel, longer, longer.digests()),
            "[mosaic] steps must have the kernel's shape [16], found [64]");
}

TEST(MosaicArrayCheck, AllAreThereInTheirOrder) {
  Arrays a("causal & documents", 1000, 2, false);
  const std::vector<int32_t> digests = a.digests();
  EXPECT_EQ(why(a.kernel, a, {}),
            "[mosaic] 5 arrays must have 20 words of digests, found 0");
  std::swap(a.arrays[0], a.arrays[1]);
  EXPECT_EQ(why(a.kernel, a, digests),
            "[mosaic] an array must be steps here, found 'range'");
  a.arrays.pop_back();
  EXPECT_EQ(why(a.kernel, a, digests),
            "[mosaic] the kernel takes 5 arrays of integers, found 4");
}

}  // namespace
}  // namespace tessera::mosaic
