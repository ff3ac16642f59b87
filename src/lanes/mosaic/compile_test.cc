// lanes/mosaic/compile_test.cc: the vendor's compiler takes the kernels of
// every class.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "lanes/mosaic/settings.h"
#include "plan/make_plan.h"
#include "tessera/machine.h"
#include "tessera/mosaic.h"
#include "tests/mosaic_compiler.h"
#include "tests/random_case.h"

namespace tessera::mosaic {
namespace {

using Class = testing::KernelClass;

class MosaicCompile : public testing::MosaicCompiler {
 protected:
  void take_what_fits(Class& c, const Chip& chip);
};

void MosaicCompile::take_what_fits(Class& c, const Chip& chip) {
  c.target = chip.target;
  const ChosenSetting fit =
      fit_setting({{c.tile, c.options, 0}, ""}, {.tile = true},
                  request_of(c.mask, c.tokens, c.tile), {}, call_of(c),
                  std::string(chip.target));
  EXPECT_TRUE(fit.chosen_by.empty() || chip.name == "v4") << fit.chosen_by;
  c.tile = fit.setting.tile;
  c.options = fit.setting.options;
}

TEST_F(MosaicCompile, SinkTelemetry) {
  for (Class c : {Class{"causal & documents", 4096, kMosaicTile, {4, 4}, 8, 8},
                  Class{"causal", 2048, {512, 512}, {1, 4}, 8, 2},
                  Class{"causal | chunk(96)", 1000, {256, 256}, {2, 14}, 6, 3},
                  Class{"tree & prefix", 700, {128, 128}, {3, 1}, 1, 1}}) {
    c.telemetry = true;
    check(c);
    c.dim = c.v_dim = 64;
    c.softcap = 30;
    check(c);
    c.dim = c.v_dim = 256;
    c.dtype = Dtype::f32;
    check(c);
  }
}

TEST_F(MosaicCompile, EveryClassOfKernel) {
  for (const Class& c : {
           Class{"causal & documents", 4096, kMosaicTile, {2, 4}, 8, 8},
           Class{"causal & documents",
                 4096,
                 {512, 512},
                 {2, 4, RowSum::rounded},
                 4,
                 4},
           Class{"full", 100, {128, 128}, {1, 1, RowSum::rounded}, 1, 1},
           Class{"full", 100, {128, 128}, {1, 1}, 1, 1},
           Class{"window(100, 7) & segments", 1000, {256, 128}, {3, 2}, 6, 2},
           Class{"causal", 2048, {1024, 256}, {1, 14}, 4, 4},
           Class{"causal & window(-1, 5)", 1024, {128, 1024}, {1, 3}, 2, 1},
           Class{"causal & documents", 4096, kMosaicBackwardTile,
                 kMosaicBackward, 8, 8, true, true},
           Class{"full", 100, {128, 128}, {1, 1}, 1, 1, true},
           Class{"window(100, 7) & segments",
                 1000,
                 {256, 128},
                 {3, 2},
                 6,
                 2,
                 true,
                 true},
           Class{"causal & window(-1, 5)",
                 1024,
                 {128, 1024},
                 {1, 14},
                 2,
                 1,
                 true},
           // Classes with bitmaps, in words of 32 and of 16 bits.
           Class{"documents | sink(4)", 4096, kMosaicTile, {4, 4}, 4, 4},
           Class{"causal & blocks(64)", 1000, {128, 384}, {2, 3}, 6, 2},
           Class{"tree & !window(9, 0)", 2048, {256, 128}, {1, 1}, 2, 2},
           Class{"causal | same(a) | same(b)", 2048, {256, 256}, {2, 2}, 4, 2},
           Class{"(causal | same(a)) & documents",
                 1000,
                 {256, 128},
                 {1, 2},
                 4,
                 2,
                 true},
           Class{"chunk(100) | prefix",
                 4096,
                 kMosaicBackwardTile,
                 {2, 1},
                 8,
                 8,
                 true,
                 true},
           Class{"causal & blocks(64)", 1000, {256, 128}, {3, 2}, 6, 2, true},
           Class{"causal & documents",
                 4096,
                 {1024, 1024},
                 {2, 4},
                 8,
                 4,
                 false,
                 false,
                 30},
           Class{"causal & window(4095, 0)",
                 4096,
                 {512, 1024},
                 {2, 1},
                 8,
                 4,
                 true,
                 true,
                 50},
           Class{"prefix | causal",
                 1000,
                 {256, 128},
                 {3, 2},
                 6,
                 2,
                 true,
                 false,
                 30},
       }) {
    ASSERT_NO_FATAL_FAILURE(check(c));
  }
}

TEST_F(MosaicCompile, EveryHeadDim) {
  for (const auto& [dim, v_dim] :
       {std::pair(64, 64), std::pair(192, 128), std::pair(256, 256)}) {
    for (const bool backward : {false, true}) {
      Class c{"causal & documents",
              4096,
              kMosaicBackwardTile,
              {1, 2, backward ? RowSum::exact : RowSum::rounded},
              4,
              2,
              backward,
              backward};
      c.dim = dim;
      c.v_dim = v_dim;
      ASSERT_NO_FATAL_FAILURE(check(c));
      // A small class with bitmaps.
      c.mask = "documents | sink(4)";
      c.tokens = 1000;
      c.tile = {256, 128};
      c.options = {3, 2};
      c.softcap = 30;
      ASSERT_NO_FATAL_FAILURE(check(c));
    }
  }
}

TEST_F(MosaicCompile, SinkLogits) {
  for (const bool backward : {false, true}) {
    Class c{"causal & documents",
            4096,
            kMosaicBackwardTile,
            {1, 1},
            4,
            2,
            backward};
    c.sinks = true;
    ASSERT_NO_FATAL_FAILURE(check(c));
    // A small class with bitmaps and one head; rounded row sums forward.
    c = {"documents | sink(4)",
         1000,
         {256, 128},
         {3, 2},
         1,
         1,
         backward,
         backward,
         30,
         192,
         128,
         true};
    if (!backward) c.options.row_sum = RowSum::rounded;
    ASSERT_NO_FATAL_FAILURE(check(c));
  }
}

// The main classes for other chips, with the default tile and passes, or what
// the chip's memory leaves of them.
TEST_F(MosaicCompile, OtherChips) {
  Class forward{"causal & documents", 4096, kMosaicTile, {4, 4}, 8, 2};
  Class bitmaps{"causal | chunk(96)", 1000, {256, 256}, {2, 2}, 6, 3};
  bitmaps.softcap = 30;
  bitmaps.sinks = true;
  Class backward{"causal & window(999, 0)", 4096, {512, 512}, {1, 1}, 4, 4};
  backward.backward = backward.dlse = true;
  Class exact{"causal", 1000, {256, 256}, {1, 1}, 2, 2};
  exact.dtype = Dtype::f32;
  for (const Chip& chip : chips()) {
    if (chip.name == "v6e") continue;
    take_target(chip.target);
    for (Class c : {forward, bitmaps, backward, exact}) {
      take_what_fits(c, chip);
      check(c);
    }
  }
}

// The compiler takes no float16 array for a kernel on any chip.
TEST_F(MosaicCompile, NoChipTakesFloat16) {
  for (const Chip& chip : chips()) {
    take_target(chip.target);
    auto kernel =
        make_mosaic_kernel(request_of("causal", 512, {256, 256}), {},
                           call_of({"causal", 512, {256, 256}, {}, 1, 1}),
                           std::string(chip.target), {1, 4});
    ASSERT_TRUE(kernel.ok()) << kernel.error().message;
    std::string half = kernel->program_text;
    for (size_t at = 0; (at = half.find("bf16", at)) != half.npos;) {
      half.erase(at, 1);
    }
    auto made = compile(half);
    ASSERT_FALSE(made.ok()) << chip.name;
    EXPECT_NE(made.error().message.find("bfloat16 or 32-bit element types"),
              std::string::npos)
        << chip.name << ": " << made.error().message;
  }
}

// Each takes half a minute, so a run of a tenth of the cases seldom has one.
// Steps come in pages, and backward queries in chunks.
TEST_F(MosaicCompile, AMillionTokens) {
  Class c{"causal & documents", 1 << 20, {512, 512}, {1, 4}, 8, 8};
  if (testing::takes_case(0)) compile_class(c);
  c.backward = c.dlse = true;
  c.options = kMosaicBackward;
  if (testing::takes_case(5)) compile_class(c);
}

// Batches with different documents, counts and lengths; a kernel is compiled
// once per contract key.
TEST_F(MosaicCompile, OneCompileServesEveryBatchOfAContract) {
  std::mt19937_64 random(3);
  std::map<std::string, pjrt::Executable> compiled;
  int compiles = 0;
  for (int batch = 0; batch < 100; ++batch) {
    const bool backward = batch % 2 == 1;
    const auto tokens = static_cast<int64_t>(1600 + random() % 449);
    Request r = request_of("causal & documents", tokens, {256, 256});
    r.ceilings = {64, 8};
    std::vector<int32_t> ids(static_cast<size_t>(tokens));
    int32_t id = 0;
    for (int32_t& out : ids) out = id += random() % 300 == 0;
    Facts facts;
    facts.doc_ids = Ints(ids);
    auto kernel = make_mosaic_kernel(
        r, facts,
        {.shape = shape_of(2, 1), .dtype = Dtype::bf16, .backward = backward},
        "v6e:1x1", {2, 4});
    ASSERT_TRUE(kernel.ok()) << kernel.error().message;
    auto plan = plan::make_plan(r, facts);
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    // The contract made from the batch's plan is the kernel's.
    auto own = make_contract(*BorrowedBatch::make(r, facts));
    ASSERT_TRUE(own.ok()) << own.error().message;
    EXPECT_EQ(own->key, kernel->plan.key);
    ASSERT_TRUE(
        make_mosaic_arrays(*BorrowedBatch::make(r, facts), *kernel).ok());
    if (compiled.contains(kernel->contract.key)) continue;
    auto made = compile(kernel->program_text);
    ASSERT_TRUE(made.ok()) << made.error().message;
    ++compiles;
    compiled.emplace(kernel->contract.key, std::move(*made));
  }
  EXPECT_EQ(compiles, 2);  // one for each direction
}

}  // namespace
}  // namespace tessera::mosaic
