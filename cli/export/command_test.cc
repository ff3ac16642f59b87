// cli/export/command_test.cc: exported arrays equal those of the library.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "base/bytes.h"
#include "base/files.h"
#include "base/npy.h"
#include "base/safetensors.h"
#include "plan/make_plan.h"
#include "tessera/layouts.h"
#include "tests/program.h"

namespace tessera::cli {
namespace {

constexpr const char* kMask = "causal & window(40, 0)";

Request request() {
  Request r;
  r.masks = {*parse_mask(kMask)};
  r.q_len = r.kv_len = 128;
  r.tile = {16, 16};
  return r;
}

class Export : public tessera::testing::Program {
 protected:
  Safetensors run(const tessera::testing::Arguments& more) {
    EXPECT_EQ(program({"export", "--mask", kMask, "--q-len", "128", "--tile",
                       "16", "-o", file("arrays")},
                      more),
              0)
        << err_;
    bytes_ = *read_file(file("arrays"), 1 << 24);
    return *parse_safetensors(bytes_);
  }

  template <class T>
  void expect(const Safetensors& file, const std::string& name,
              const std::vector<int64_t>& shape, const std::vector<T>& values) {
    auto tensor = file.find(name);
    ASSERT_TRUE(tensor.ok()) << name;
    EXPECT_EQ(tensor->shape, shape) << name;
    EXPECT_EQ(load_array<T>(tensor->bytes), values) << name;
  }

  const Plan plan_ = *plan::make_plan(request(), {});
  std::string bytes_;
};

TEST_F(Export, Flex) {
  const Safetensors file = run({"--layout", "flex", "--heads", "2"});
  const FlexBlockMask mask = *make_flex(*BorrowedBatch::make(request(), {}), 2);
  EXPECT_EQ(file.tensors.size(), 8u);
  expect(file, "kv_num_blocks", {1, 2, 8}, mask.kv.num_blocks);
  expect(file, "full_kv_indices", {1, 2, 8, 8}, mask.full_kv.indices);
  expect(file, "q_indices", {1, 2, 8, 8}, mask.q.indices);
  expect(file, "full_q_num_blocks", {1, 2, 8}, mask.full_q.num_blocks);
}

// Picks that are read, exported and read again are the same.
TEST_F(Export, TopkComesBack) {
  std::vector<int32_t> values;
  for (int32_t i = 0; i < 128 * 2; ++i) {
    const int32_t first = 31 - i % 32, second = i % 31;
    values.insert(values.end(), {first == second ? -1 : first, -1, second});
  }
  const std::vector<int64_t> shape = {128, 2, 3};
  ASSERT_TRUE(write_file(file("topk.npy"), *write_npy(shape, values)).ok());
  std::string source = file("topk.npy");
  for (const char* to : {"first.safetensors", "second.safetensors"}) {
    ASSERT_EQ(program({"export", "--layout", "topk", "--mask",
                       "causal & blocks(4)", "--q-len", "128", "--picks",
                       "topk_idxs:" + source, "-o", file(to)}),
              0)
        << err_;
    source = file(to);
    bytes_ = *read_file(source, 1 << 24);
    const Safetensors written = *parse_safetensors(bytes_);
    EXPECT_EQ(written.tensors.size(), 1u);
    expect(written, "topk_idxs", shape, values);
  }
}

TEST_F(Export, Splash) {
  const Safetensors file = run({"--layout", "splash", "--dkv"});
  SplashOptions options;
  options.dkv = true;
  const SplashMaskInfo info =
      *make_splash(*BorrowedBatch::make(request(), {}), 0, options);
  expect(file, "block_mask", info.block_mask.shape, info.block_mask.bytes);
  expect(file, "data_next", info.data_next.shape, info.data_next.bytes);
  expect(file, "partial_mask_blocks", info.partial_mask_blocks->shape,
         info.partial_mask_blocks->bytes);
  EXPECT_EQ(file.find("partial_mask_blocks")->dtype, Dtype::boolean);
}

TEST_F(Export, Tokamax) {
  const BorrowedBatch batch = *BorrowedBatch::make(request(), {});
  for (const bool dkv : {false, true}) {
    tessera::testing::Arguments more = {"--layout", "tokamax", "--max-blocks",
                                        "9"};
    if (dkv) more.emplace_back("--dkv");
    const Safetensors file = run(more);
    const TokamaxMaskInfo info = *make_tokamax_run(batch, 0, {dkv, 0, 9});
    const auto steps = static_cast<int64_t>(info.block_mask.size());
    EXPECT_EQ(file.tensors.size(), 6u);
    expect(file, "active_rows", {steps}, info.active_rows);
    expect(file, "active_cols", {steps}, info.active_cols);
    expect(file, "block_mask", {steps}, info.block_mask);
    expect(file, "mask_next", {steps}, info.mask_next);
    expect(file, "num_active_blocks", {1},
           std::vector{static_cast<int32_t>(info.num_active_blocks)});
    expect(file, "partial_mask_blocks", {9, 16, 16},
           info.partial_mask_blocks.bytes);
    EXPECT_EQ(file.find("partial_mask_blocks")->dtype, Dtype::i8);
  }
}

TEST_F(Export, StepsListsAndBitmaps) {
  const Steps steps = *pack_steps(*BorrowedBatch::make(request(), {}), true);
  std::vector<uint32_t> words;
  for (const Step& s : steps.steps) words.push_back(s.word);
  const auto count = static_cast<int64_t>(words.size());
  expect(run({"--layout", "steps"}), "transposed.steps", {count}, words);
  expect(run({"--layout", "lists"}), "forward.row_start", {9},
         plan_.forward.row_start);
  const Bitmaps bitmaps = *make_bitmaps(*BorrowedBatch::make(request(), {}));
  const auto distinct =
      static_cast<int64_t>(bitmaps.words.size()) / bitmaps.words_per_tile;
  expect(run({"--layout", "bitmaps"}), "words",
         {distinct, bitmaps.words_per_tile}, bitmaps.words);
}

TEST_F(Export, TheRectangleAlsoByTheNamesOfSplash) {
  const Safetensors file = run({"--layout", "rectangle"});
  EXPECT_EQ(file.tensors.size(), 14u);
  for (const bool transposed : {false, true}) {
    const std::string of = transposed ? "transposed." : "forward.";
    // 4 is the bucket of the rectangle's width.
    const Rectangle r =
        *make_rectangle(transposed ? plan_.transposed : plan_.forward, 4);
    expect(file, of + "column", {1, 1, 8, 4}, r.column);
    expect(file, of + "data_next", {1, 1, 8, 4}, r.column);
    expect(file, of + "class", {1, 1, 8, 4}, r.tile_class);
    expect(file, of + "block_mask", {1, 1, 8, 4}, r.tile_class);
    expect(file, of + "grid_width", {1}, std::vector<int32_t>{4});
    const MaskBlocks masks =
        *make_mask_blocks(*BorrowedBatch::make(request(), {}), transposed, 4);
    const auto distinct = static_cast<int64_t>(masks.blocks.size()) / 256;
    expect(file, of + "mask_next", {1, 1, 8, 4}, masks.mask_next);
    expect(file, of + "partial_mask_blocks", {distinct, 16, 16}, masks.blocks);
    EXPECT_EQ(file.find(of + "partial_mask_blocks")->dtype, Dtype::boolean);
  }
  EXPECT_EQ(run({"--layout", "rectangle", "--no-mask-blocks"}).tensors.size(),
            10u);
}

// A kernel copies without bounds checks, so the lists must be for its own tile.
TEST_F(Export, TheKernelsListsAreThoseOfTheKernelThatCompileMakes) {
  std::set<std::string> tiles;
  for (const char* chip : {"v4", "v5e", "v5p", "v6e", "tpu7x"}) {
    for (const char* dim : {"64", "128", "256"}) {
      for (const bool backward : {false, true}) {
        tessera::testing::Arguments asked = {
            "--mask", "causal & documents", "--q-len", "8192",     "--head-dim",
            dim,      "--keys-per-query",   "4096",    "--target", chip,
            "--json"};
        if (backward) asked.emplace_back("--backward");
        ASSERT_EQ(program({"compile", "--heads", "8", "--no-compile", "--emit",
                           file("kernel.mlir")},
                          asked),
                  0)
            << err_;
        const auto made = nlohmann::json::parse(out_)["kernel"];
        ASSERT_EQ(program({"export", "--layout", "mosaic", "--docs",
                           "lengths:8192", "-o", file("lists")},
                          asked),
                  0)
            << err_;
        const auto lists = nlohmann::json::parse(out_);
        for (const char* name : {"tile", "tiles_per_pass", "chosen_by"}) {
          EXPECT_EQ(lists[name], made[name]) << chip << dim << backward;
        }
        EXPECT_EQ(lists["arrays"]["steps"]["shape"][0], made["steps"])
            << chip << dim << backward;
        tiles.insert(made["tile"].dump());
      }
    }
  }
  EXPECT_GT(tiles.size(), 1u);
}

TEST_F(Export, ASavedPlansListsAreThoseOfItsKernel) {
  ASSERT_EQ(program({"plan", "--mask", "causal & window(1023, 0)", "--q-len",
                     "8192", "--tile", "512x512", "-o", file("plan")},
                    {}),
            0)
      << err_;
  const tessera::testing::Arguments asked = {"--plan", file("plan"), "--target",
                                             "v6e", "--json"};
  ASSERT_EQ(program({"compile", "--no-compile", "--emit", file("kernel.mlir")},
                    asked),
            0)
      << err_;
  const auto made = nlohmann::json::parse(out_)["kernel"];
  ASSERT_EQ(
      program({"export", "--layout", "mosaic", "-o", file("lists")}, asked), 0)
      << err_;
  const auto lists = nlohmann::json::parse(out_);
  for (const char* name : {"tile", "tiles_per_pass", "chosen_by"}) {
    EXPECT_EQ(lists[name], made[name]) << name;
  }
  EXPECT_EQ(made["tiles_per_pass"], 1);  // not the default
}

}  // namespace
}  // namespace tessera::cli
