// lanes/mosaic/arrays_test.cc: the arrays make the same pairs legal as the
// definitions, and a row has its tiles in the order that the kernel wants.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "lanes/mosaic/rule.h"
#include "mask/canonical.h"
#include "tessera/mosaic.h"
#include "tessera/plan.h"
#include "tests/hold_for_all.h"
#include "tests/lowering.h"

namespace tessera::mosaic {
namespace {

using testing::describe;
using testing::Fault;
using testing::hold_for_all;
using testing::RandomCase;

// A random conjunction of atoms that the kernel supports and the case has facts
// for.
Expr conjunction(const RandomCase& c) {
  std::mt19937_64 random(c.seed);
  auto flip = [&] { return random() % 2 == 0; };
  auto distance = [&] {
    return static_cast<int64_t>(random() % 24) - 1;  // -1 is off
  };
  Expr e = full();
  if (flip()) e = e & causal();
  if (flip()) e = e & window(distance(), distance());
  if (flip()) e = e & window(distance(), distance());
  if (c.doc_ids && flip()) e = e & documents();
  if (c.doc_ids && !c.q_doc_ids && random() % 4 == 0) e = e & segments();
  return e;
}

MosaicKernel room_for(const RandomCase& c, int64_t tiles_per_pass) {
  MosaicKernel kernel;
  kernel.batch = c.batch + 1;
  kernel.q_len = c.q_len + 5;
  kernel.kv_len = c.kv_len + 9;
  kernel.tile = c.tile;
  kernel.steps = 1 << 20;
  kernel.options.tiles_per_pass = tiles_per_pass;
  return kernel;
}

int32_t at(const std::vector<int32_t>& values, int64_t i) {
  return values[static_cast<size_t>(i)];
}

// A random case, the arrays that it gives the kernel, and its legal pairs.
struct Judged {
  const RandomCase& c;
  const MosaicKernel& kernel;
  const MosaicArrays& arrays;
  const Legality& legality;
  const Batch& batch;
};

// Checks `fault` for every random case that the kernel can take.
void hold_for_arrays(const std::function<Fault(const Judged&)>& fault) {
  int64_t judged = 0;
  hold_for_all(
      [&](const RandomCase& original) -> Fault {
        RandomCase c = original;
        c.masks = {conjunction(c)};
        c.picks.reset();
        if (!testing::well_formed(c)) return {};
        auto request = c.request();
        if (!request) return {};
        const Facts facts = c.facts();
        auto legality = Legality::bind(*request, facts);
        if (!legality) return {};
        MosaicKernel kernel = room_for(c, 1 + static_cast<int64_t>(c.seed % 4));
        kernel.mask = mask::folded_text(request->masks.front().expr);
        auto batch = BorrowedBatch::make(*request, facts);
        if (!batch) return batch.error().message;
        auto arrays = make_mosaic_arrays(*batch, kernel);
        if (!arrays) return arrays.error().message;
        ++judged;
        return fault({c, kernel, *arrays, *legality, *batch});
      },
      400);
  EXPECT_GT(judged, testing::case_count(400) / 4);
}

TEST(MosaicArrays, AgreeWithTheDefinitions) {
  hold_for_arrays([](const Judged& j) -> Fault {
    auto rule = mosaic::rule_of(j.batch.request().masks.front());
    if (!rule) return "there are bounds and ids";
    const MosaicArrays& a = j.arrays;
    for (int64_t b = 0; b < j.kernel.batch; ++b) {
      for (int64_t q = 0; q < j.kernel.q_len; ++q) {
        for (int64_t k = 0; k < j.kernel.kv_len; ++k) {
          const int64_t d = k - q - at(a.bounds, 2 + b);
          const bool found = at(a.q_ids, b * j.kernel.q_len + q) ==
                                 at(a.kv_ids, b * j.kernel.kv_len + k) &&
                             (!rule->low || d >= at(a.bounds, 0)) &&
                             (!rule->high || d <= at(a.bounds, 1));
          const bool due = b < j.c.batch && q < j.c.q_len && k < j.c.kv_len &&
                           j.legality.legal(b, 0, q, k);
          if (found != due) {
            return fmt::format("row {} query {} key {}: found {} for {}", b, q,
                               k, found, due);
          }
        }
      }
    }
    return {};
  });
}

// Compares the steps of one tile row with brute force.
Fault row_fault(const std::vector<Step>& row, const Worklist& list, int64_t b,
                const std::vector<bool>& vetoed, const Legality& legality,
                const RandomCase& c) {
  std::set<int64_t> due, found;
  for (const Entry& e : list.row(b, row.front().row())) due.insert(e.column());
  int64_t before = 2;
  for (const Step& step : row) {
    const int64_t at = step.step_class();
    const int64_t order = at == 0 ? -1 : at == 2 ? 2 : at == 1 ? 1 : 0;
    if (order > before) return "classes out of order";
    before = order;
    const bool has_veto = vetoed[static_cast<size_t>(step.column())];
    if (at == 0) {
      if (step.column() != row.front().column()) return "another filler";
      if (has_veto && row.front().step_class() != 3) return "unclean filler";
      continue;
    }
    if (!due.empty() && !found.insert(step.column()).second) return "twice";
    bool full = true;
    for (int64_t q = 0; q < c.tile.q; ++q) {
      for (int64_t k = 0; k < c.tile.kv; ++k) {
        const int64_t query = step.row() * c.tile.q + q;
        const int64_t key = step.column() * c.tile.kv + k;
        full &= query < c.q_len && key < c.kv_len &&
                legality.legal(b, 0, query, key);
      }
    }
    if (at != (full ? 2 : has_veto ? 3 : 1)) return "another class";
  }
  if (found != due) return "other columns";
  return {};
}

TEST(MosaicArrays, FullTilesComeFirstAndTilesToCleanLast) {
  hold_for_arrays([](const Judged& j) -> Fault {
    const MosaicArrays& a = j.arrays;
    const Worklist& list = j.batch.plan().forward;
    for (int64_t b = 0; b < j.c.batch; ++b) {
      std::vector<bool> vetoed(static_cast<size_t>(list.columns));
      for (int64_t k = 0; k < list.columns * j.c.tile.kv; ++k) {
        if (k >= j.c.kv_len || at(a.kv_ids, b * j.kernel.kv_len + k) < 0) {
          vetoed[static_cast<size_t>(k / j.c.tile.kv)] = true;
        }
      }
      std::vector<Step> row;
      for (int64_t i = at(a.range, b); i < at(a.range, b + 1); ++i) {
        const Step step{static_cast<uint32_t>(at(a.steps, i))};
        if (step.first() != row.empty()) return "first is elsewhere";
        row.push_back(step);
        if (!step.last()) continue;
        if (auto f = row_fault(row, list, b, vetoed, j.legality, j.c); f) {
          return f;
        }
        row.clear();
      }
      if (!row.empty()) return "a row without an end";
    }
    return {};
  });
}

// A list's pages, read one after another, give the list: whole rows, no page
// too full, and each list's rows counted.
TEST(MosaicArrays, PagesHoldEveryStepOnceAndInOrder) {
  int64_t pages_used = 0;
  hold_for_arrays([&](const Judged& j) -> Fault {
    const MosaicArrays& flat = j.arrays;
    int64_t longest = 1, row = 0;
    for (int64_t i = 0; i < flat.range.back(); ++i) {
      const Step step{static_cast<uint32_t>(at(flat.steps, i))};
      row = step.first() ? 1 : row + 1;
      longest = std::max(longest, row);
    }
    MosaicKernel kernel = j.kernel;
    const int64_t lists = kernel.batch;
    constexpr int64_t kPages = 64;
    kernel.page = 1024;
    kernel.options.page_steps =
        std::max(longest + static_cast<int64_t>(j.c.seed % 5),
                 flat.range.back() / (kPages / 2));
    kernel.steps = lists * kPages * kernel.page;
    auto made = make_mosaic_arrays(j.batch, kernel);
    if (!made) return made.error().message;
    for (int64_t list = 0; list < lists; ++list) {
      int64_t due = at(flat.range, list), rows = 0;
      for (int64_t p = list * kPages; p < (list + 1) * kPages; ++p) {
        const int64_t count = at(made->range, p);
        pages_used += count > 0;
        if (count > kernel.options.page_steps) return "a page holds too many";
        for (int64_t i = 0; i < count; ++i) {
          const int32_t word = at(made->steps, p * kernel.page + i);
          if (word != at(flat.steps, due++)) return "another step";
          const Step step{static_cast<uint32_t>(word)};
          if (i == 0 && !step.first()) return "a page begins within a row";
          if (i + 1 == count && !step.last()) return "a page ends within one";
          rows += step.last();
        }
      }
      if (due != at(flat.range, list + 1)) return "steps are left out";
      if (rows != at(made->range, lists * kPages + list)) return "other rows";
    }
    return {};
  });
  EXPECT_GT(pages_used, testing::case_count(400));  // several pages a list
}

TEST(MosaicArrays, AListThatItsPagesDoNotHoldIsAnError) {
  Request request;
  request.masks = {*parse_mask("causal")};
  request.q_len = request.kv_len = 600;
  request.tile = {128, 128};
  MosaicKernel kernel;
  kernel.q_len = kernel.kv_len = 640;
  kernel.tile = request.tile;
  kernel.mask = mask::folded_text(request.masks.front().expr);
  kernel.options.tiles_per_pass = 1;
  kernel.page = 1024;
  kernel.options.page_steps = 5;  // rows of 1 to 5 steps; pages: 1 + 2, 3, 4, 5
  const auto batch = BorrowedBatch::make(request, {});
  kernel.steps = 4 * kernel.page;
  EXPECT_TRUE(make_mosaic_arrays(*batch, kernel).ok());
  kernel.steps = 3 * kernel.page;
  const auto found = make_mosaic_arrays(*batch, kernel);
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().message,
            "[mosaic] a list's steps must fit the kernel's 3 pages of 5, found "
            "15");
}

struct Small {
  Request request;
  MosaicKernel kernel;

  explicit Small(const char* mask) {
    request.masks = {*parse_mask(mask)};
    request.q_len = request.kv_len = 300;
    request.tile = {128, 128};
    kernel.batch = 1;
    kernel.q_len = kernel.kv_len = 384;
    kernel.steps = 12;
    kernel.options.tiles_per_pass = 2;
    kernel.tile = request.tile;
    kernel.mask = mask::folded_text(request.masks.front().expr);
  }
  std::string error() const {
    auto r = make_mosaic_arrays(*BorrowedBatch::make(request, {}), kernel);
    return r ? "no error" : r.error().message;
  }
};

TEST(MosaicArrays, RowsAreFilledUpToWholePasses) {
  const Small s("causal");
  auto arrays =
      make_mosaic_arrays(*BorrowedBatch::make(s.request, {}), s.kernel);
  ASSERT_TRUE(arrays.ok()) << arrays.error().message;
  // Rows of 1, 2 and 3 tiles; two tiles a pass: 2 + 2 + 4 steps.
  EXPECT_EQ(arrays->range, (std::vector<int32_t>{0, 8}));
  // The last row crosses q_len, so all of it is masked; keys beyond kv_len are
  // in column 2. A filler step names its row's first tile.
  const int classes[] = {1, 0, 2, 1, 1, 1, 3, 0, 0, 0, 0, 0};
  const int columns[] = {0, 0, 0, 1, 0, 1, 2, 0, 0, 0, 0, 0};
  ASSERT_EQ(arrays->steps.size(), 12u);
  for (size_t i = 0; i < 12; ++i) {
    const Step step{static_cast<uint32_t>(arrays->steps[i])};
    EXPECT_EQ(step.step_class(), classes[i]) << i;
    EXPECT_EQ(step.column(), columns[i]) << i;
  }
}

// Every pair of every step, in both directions, is as the definitions say;
// equal bitmaps are stored once.
TEST(MosaicArrays, BitmapsSayWhatIsLegal) {
  for (const Tile tile : {Tile{128, 128}, Tile{256, 128}, Tile{128, 256},
                          Tile{128, 384}, Tile{256, 512}}) {
    for (const bool backward : {false, true}) {
      Request request;
      request.masks = {*parse_mask("causal & !chunk(7) | sink(9)"),
                       *parse_mask("full")};
      request.q_len = request.kv_len = 600;
      request.tile = tile;
      AttentionCall call;
      call.shape = {4, 2, 128, 128, {}, 0};
      call.dtype = Dtype::bf16;
      call.backward = backward;
      MosaicOptions options = {3, 1};
      options.lowering_reason = testing::lowering_reason(tile);
      auto kernel = make_mosaic_kernel(request, {}, call, "v6e", options);
      ASSERT_TRUE(kernel.ok()) << kernel.error().message;
      const auto batch = BorrowedBatch::make(request, {});
      auto arrays = make_mosaic_arrays(*batch, *kernel);
      ASSERT_TRUE(arrays.ok()) << arrays.error().message;
      auto legality = Legality::bind(request, {});
      const int64_t rows = static_cast<int64_t>(arrays->bits.size()) /
                           (kernel->bitmaps * tile.q);
      ASSERT_EQ(rows, tile.kv / (tile.kv % 256 == 0 ? 32 : 16));
      int64_t most = 0, wrong = 0;
      for (int64_t head = 0; head < 2; ++head) {
        for (int64_t i = at(arrays->range, head);
             i < at(arrays->range, head + 1); ++i) {
          const Step step{static_cast<uint32_t>(at(arrays->steps, i))};
          const int64_t bitmap = at(arrays->bits_of, i);
          most = std::max(most, bitmap);
          const int64_t r = backward ? step.column() : step.row(),
                        c = backward ? step.row() : step.column();
          for (int64_t q = 0; q < tile.q; ++q) {
            for (int64_t k = 0; k < tile.kv; ++k) {
              const int64_t query = r * tile.q + q, key = c * tile.kv + k;
              const bool due = step.step_class() != 0 && query < 600 &&
                               key < 600 &&
                               legality->legal(0, head, query, key);
              const int64_t word = (bitmap * rows + k % rows) * tile.q + q;
              wrong += (at(arrays->bits, word) >> (k / rows) & 1) != due;
            }
          }
        }
      }
      EXPECT_EQ(wrong, 0);
      EXPECT_GT(most, 3);
      EXPECT_LT(most, arrays->range.back());
    }
  }
}

// Bounds that no pair can reach are clamped, so that the kernel's sums stay in
// 32 bits.
TEST(MosaicArrays, BoundsBeyondEveryPairAreDrawnIn) {
  for (const auto& [mask, low, high] :
       {std::tuple{"window(-1, 2147483647)", 0, 384},
        std::tuple{"window(2147483647, 7)", -384, 7},
        std::tuple{"window(5, 2147483647)", -5, 384}}) {
    const Small s(mask);
    auto arrays =
        make_mosaic_arrays(*BorrowedBatch::make(s.request, {}), s.kernel);
    ASSERT_TRUE(arrays.ok()) << arrays.error().message;
    EXPECT_EQ(arrays->bounds, (std::vector<int32_t>{low, high, 0})) << mask;
  }
  Small far("window(0, 5)");
  const std::vector<int32_t> offset = {(1 << 30) - 1};
  Facts facts;
  facts.q_offsets = Ints(offset);
  auto fits =
      make_mosaic_arrays(*BorrowedBatch::make(far.request, facts), far.kernel);
  EXPECT_TRUE(fits.ok()) << fits.error().message;
}

// The check comes before the list is cut, whose tiles need not fit the kernel's
// chunks.
TEST(MosaicArrays, APlanOfAnotherTileIsRefusedBeforeItIsCutIntoChunks) {
  Request request;
  request.masks = {*parse_mask("causal")};
  request.q_len = request.kv_len = 4096;
  request.tile = {512, 512};
  AttentionCall call;
  call.shape = {8, 8, 128, 128, {}, 0};
  call.dtype = Dtype::bf16;
  call.backward = true;
  MosaicOptions options = kMosaicBackward;
  options.query_chunk = 1024;
  const auto kernel = make_mosaic_kernel(request, {}, call, "v6e", options);
  ASSERT_TRUE(kernel.ok()) << kernel.error().message;
  EXPECT_TRUE(make_mosaic_arrays(*BorrowedBatch::make(request, {}), *kernel));
  for (const auto& [tile, words] : {std::pair(Tile{128, 128}, "128x128"),
                                    {{256, 512}, "256x512"},
                                    {{512, 256}, "512x256"},
                                    {{1024, 1024}, "1024x1024"}}) {
    request.tile = tile;
    const auto found =
        make_mosaic_arrays(*BorrowedBatch::make(request, {}), *kernel);
    ASSERT_FALSE(found.ok()) << words;
    EXPECT_EQ(found.error().message,
              fmt::format("[mosaic] a plan's tile must be the kernel's "
                          "512x512, found {}",
                          words));
  }
}

TEST(MosaicArrays, ABatchThatDoesNotFitIsRefused) {
  Small steps("causal");
  steps.kernel.steps = 7;
  EXPECT_EQ(steps.error(), "[mosaic] steps must fit the kernel's 7, found 8");
  Small keys("causal");
  keys.kernel.kv_len = 256;
  EXPECT_EQ(keys.error(),
            "[mosaic] kv_len must fit the kernel's 256, found 300");
  Small tile("causal");
  tile.kernel.tile = {256, 128};
  EXPECT_EQ(tile.error(),
            "[mosaic] a plan's tile must be the kernel's 256x128, found "
            "128x128");
  Small mask("causal | chunk(3)");
  EXPECT_EQ(mask.error(),
            "[mosaic] a kernel must have bitmaps for such a mask, found none "
            "for causal | chunk(3)");
  mask.kernel.bitmaps = 3;
  EXPECT_EQ(mask.error(),
            "[mosaic] bitmaps of tiles must fit the kernel's 3, found 8");
  mask.request.tile = mask.kernel.tile = {60, 60};
  mask.kernel.steps = 100;
  EXPECT_EQ(mask.error(),
            "[mosaic] tiles with bitmaps must have sides of whole 128, found "
            "60x60");
  Small heads("causal");
  heads.request.masks.push_back(heads.request.masks.front());
  EXPECT_EQ(heads.error(),
            "[mosaic] heads with masks of their own must be the kernel's 1, "
            "found 2");
  Small other("causal");
  other.kernel.mask = "window(0, 0)";
  EXPECT_EQ(
      other.error(),
      "[mosaic] the mask must be the kernel's window(0, 0), found causal");
}

}  // namespace
}  // namespace tessera::mosaic
