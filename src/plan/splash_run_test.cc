// plan/splash_run_test.cc: Splash's arrays under the ceilings of a run: JAX's
// arrays against unpadded ones, tokamax's steps against brute force.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "tessera/layouts.h"
#include "tests/oracle.h"
#include "tests/random_case.h"
#include "tests/random_worklist.h"

namespace tessera::plan {
namespace {

using namespace testing;

// Lengths are multiples of the tile, and the batch row is not the first.
RandomCase case_of(std::mt19937_64& random, uint64_t seed, int64_t heads) {
  RandomCase c;
  c.seed = seed;
  c.batch = 2;
  c.tile = {8 * random_int(random, 1, 3), 8 * random_int(random, 1, 3)};
  c.kv_len = c.tile.q * c.tile.kv * random_int(random, 1, 2) / 4;
  c.q_len = c.kv_len;
  const char* const atoms[] = {"causal", "documents", "window(20, 3)", "full",
                               "!full"};
  for (int64_t h = 0; h < heads; ++h) {
    std::string text = atoms[random_int(random, 0, 4)];
    if (random_int(random, 0, 1) == 0) {
      text += random_int(random, 0, 2) == 0 ? " | " : " & ";
      text += atoms[random_int(random, 0, 4)];
    }
    c.masks.push_back(*parse_expr(text));
  }
  c.doc_ids.emplace();
  int32_t id = 0;
  for (int64_t i = 0; i < c.batch * c.kv_len; ++i) {
    if (random_int(random, 0, 12) == 0) ++id;
    c.doc_ids->push_back(random_int(random, 0, 30) == 0 ? -1 : id);
  }
  return c;
}

struct Case {
  RandomCase text;
  Request request;
  Facts facts;

  Case(RandomCase c, const Ceilings& ceilings)
      : text(std::move(c)), request(*text.request()), facts(text.facts()) {
    request.ceilings = ceilings;
  }
  Case(const Case&) = delete;
  Case& operator=(const Case&) = delete;
  BorrowedBatch batch() const { return *BorrowedBatch::make(request, facts); }
};

// ---- JAX's ----

// Expects `got` to be `from`, extended along one axis with copies of its last
// slot if `repeats`, else with 0.
void expect_longer(const SplashArray& from, const SplashArray& got, size_t axis,
                   int64_t size, bool repeats, const char* name) {
  SCOPED_TRACE(name);
  std::vector<int64_t> shape = from.shape;
  shape[axis] = size;
  ASSERT_EQ(got.shape, shape);
  ASSERT_EQ(got.type, from.type);
  ASSERT_EQ(got.size(), shape[0] * shape[1] * shape[2]);
  for (int64_t i = 0; i < got.size(); ++i) {
    int64_t at[3] = {i / shape[2] / shape[1], i / shape[2] % shape[1],
                     i % shape[2]};
    const bool beyond = at[axis] >= from.shape[axis];
    if (beyond) at[axis] = from.shape[axis] - 1;
    const int64_t last =
        from.at((at[0] * from.shape[1] + at[1]) * from.shape[2] + at[2]);
    ASSERT_EQ(got.at(i), beyond && !repeats ? 0 : last) << "cell " << i;
  }
}

void expect_roomy(const Case& c, int64_t batch_row, const SplashRun& run) {
  SplashOptions options;
  options.dkv = run.dkv;
  options.heads = run.heads;
  options.downcast = false;
  const BorrowedBatch batch = c.batch();
  SplashMaskInfo tight = *make_splash(batch, batch_row, options);
  const int64_t rows = c.request.q_len / c.request.tile.q;
  const int64_t columns = c.request.kv_len / c.request.tile.kv;
  const size_t axis = run.dkv ? 1 : 2;
  const int64_t needs = tight.block_mask.shape[axis];
  const int64_t most = c.request.ceilings.max_width;
  const int64_t width =
      most == 0 ? bucket(needs)
                : std::max(needs, std::min(most, run.dkv ? rows : columns));
  if (!tight.mask_next) {
    tight.mask_next = tight.data_next;
    std::fill(tight.mask_next->bytes.begin(), tight.mask_next->bytes.end(), 0);
    const Tile& t = c.request.tile;
    tight.partial_mask_blocks = {
        SplashType::boolean,
        {1, run.dkv ? t.kv : t.q, run.dkv ? t.q : t.kv},
        std::vector<uint8_t>(static_cast<size_t>(t.q * t.kv), 0)};
  }
  const int64_t distinct = tight.partial_mask_blocks->shape[0];
  const int64_t tiles = batch.plan().heads * rows * columns;
  const int64_t blocks =
      run.max_blocks == 0 ? bucket(distinct)
                          : std::max(distinct, std::min(run.max_blocks, tiles));
  const auto got = make_splash_run(batch, batch_row, run);
  ASSERT_TRUE(got.ok()) << got.error().message;
  ASSERT_TRUE(got->mask_next && got->partial_mask_blocks);
  EXPECT_FALSE(got->q_sequence);
  expect_longer(tight.data_next, got->data_next, axis, width, true, "data");
  expect_longer(*tight.mask_next, *got->mask_next, axis, width, true, "mask");
  expect_longer(tight.block_mask, got->block_mask, axis, width, false, "class");
  expect_longer(*tight.partial_mask_blocks, *got->partial_mask_blocks, 0,
                blocks, false, "blocks");
}

TEST(SplashRun, HasTheArraysWithRoom) {
  for_seeds(200, [](std::mt19937_64& random, uint64_t seed) {
    const int64_t heads = random_int(random, 1, 2);
    const Ceilings ceilings{0, random_int(random, 0, 14)};
    const Case c(case_of(random, seed, heads), ceilings);
    SCOPED_TRACE(describe(c.text));
    SplashRun run;
    run.dkv = random_int(random, 0, 1) == 0;
    run.heads = heads * random_int(random, 0, 2);
    run.max_blocks = random_int(random, 0, 1) * random_int(random, 40, 200);
    expect_roomy(c, random_int(random, 0, 1), run);
  });
}

// ---- tokamax's ----

struct Visit {
  int64_t row, column, tile_class;
  std::vector<int64_t> pairs;  // pairs of a partial tile

  bool operator==(const Visit&) const = default;
};

// The visits that the definition requires.
std::vector<Visit> visits_due(const Oracle& oracle, const Request& r,
                              int64_t batch_row, bool dkv) {
  const int64_t queries = r.q_len / r.tile.q, keys = r.kv_len / r.tile.kv;
  const int64_t height = dkv ? r.tile.kv : r.tile.q;
  const int64_t width = dkv ? r.tile.q : r.tile.kv;
  std::vector<Visit> out;
  for (int64_t row = 0; row < (dkv ? keys : queries); ++row) {
    const size_t before = out.size();
    for (int64_t column = 0; column < (dkv ? queries : keys); ++column) {
      Visit visit{row, column, 1, {}};
      for (int64_t i = row * height; i < (row + 1) * height; ++i) {
        for (int64_t j = column * width; j < (column + 1) * width; ++j) {
          visit.pairs.push_back(
              oracle.legal(batch_row, 0, dkv ? j : i, dkv ? i : j));
        }
      }
      const auto legal = std::count(visit.pairs.begin(), visit.pairs.end(), 1);
      if (legal == 0) continue;
      if (legal == height * width) {
        visit.tile_class = 2;
        visit.pairs.clear();
      }
      out.push_back(std::move(visit));
    }
    if (dkv && out.size() == before) out.push_back({row, 0, 0, {}});
  }
  return out;
}

std::vector<int64_t> pairs_of(const SplashArray& blocks, int64_t block) {
  const int64_t area = blocks.shape[1] * blocks.shape[2];
  std::vector<int64_t> out;
  for (int64_t i = 0; i < area; ++i) out.push_back(blocks.at(block * area + i));
  return out;
}

void expect_steps(const TokamaxMaskInfo& got, const std::vector<Visit>& due,
                  int64_t size) {
  ASSERT_EQ(got.num_active_blocks, static_cast<int64_t>(due.size()));
  for (const auto* list :
       {&got.mask_next, &got.active_rows, &got.active_cols, &got.block_mask}) {
    ASSERT_EQ(static_cast<int64_t>(list->size()), size);
  }
  // A full tile names the mask of the next partial tile, which is thus
  // prefetched. Tiles after the last partial one name the first mask.
  std::optional<int32_t> next;
  for (size_t i = due.size(); i-- > 0;) {
    if (due[i].tile_class == 1) next = got.mask_next[i];
  }
  for (size_t i = due.size(); i-- > 0;) {
    SCOPED_TRACE("step " + std::to_string(i));
    const int32_t mask = got.mask_next[i];
    Visit visit{got.active_rows[i], got.active_cols[i], got.block_mask[i], {}};
    if (visit.tile_class == 1) {
      visit.pairs = pairs_of(got.partial_mask_blocks, mask);
      next = mask;
    }
    ASSERT_EQ(visit, due[i]);
    ASSERT_EQ(mask, due[i].tile_class == 0 ? 0 : next.value_or(0));
  }
  for (size_t i = due.size(); i < got.mask_next.size(); ++i) {
    ASSERT_EQ(got.active_rows[i], -1);
    ASSERT_EQ(got.active_cols[i], -1);
    ASSERT_EQ(got.block_mask[i], 0);
    ASSERT_EQ(got.mask_next[i], due.empty() ? 0 : got.mask_next[i - 1]);
  }
}

TEST(SplashRun, TokamaxVisitsWhatBruteForceSays) {
  for_seeds(200, [](std::mt19937_64& random, uint64_t seed) {
    const int64_t most = random_int(random, 0, 1) * random_int(random, 1, 150);
    const Case c(case_of(random, seed, 1), {most, 30});
    SCOPED_TRACE(describe(c.text));
    const Oracle oracle(c.text.masks, c.request, c.facts);
    const Tile& tile = c.request.tile;
    const int64_t tiles =
        c.request.q_len / tile.q * (c.request.kv_len / tile.kv);
    for (const bool dkv : {false, true}) {
      const int64_t batch_row = random_int(random, 0, 1);
      const auto due = visits_due(oracle, c.request, batch_row, dkv);
      const auto count = static_cast<int64_t>(due.size());
      const auto got =
          make_tokamax_run(c.batch(), batch_row, {dkv, 0, tiles + 5});
      ASSERT_TRUE(got.ok()) << got.error().message;
      const SplashArray& blocks = got->partial_mask_blocks;
      EXPECT_EQ(blocks.type, SplashType::int8);
      EXPECT_EQ(blocks.shape,
                (std::vector<int64_t>{tiles, dkv ? tile.kv : tile.q,
                                      dkv ? tile.q : tile.kv}));
      ASSERT_EQ(blocks.size(), tiles * tile.q * tile.kv);
      expect_steps(
          *got, due,
          most == 0 ? bucket(count) : std::max(count, std::min(most, tiles)));
    }
  });
}

// ---- Refusals ----

TEST(SplashRun, RefusesWhatDoesNotFit) {
  Request diagonal;  // two tile masks: on the diagonal and next to it
  diagonal.masks = {*parse_mask("window(10, 0)")};
  diagonal.q_len = diagonal.kv_len = 64;
  diagonal.tile = {16, 16};
  Request heads = diagonal;
  heads.masks.push_back(*parse_mask("full"));
  Request large = diagonal;
  large.q_len = large.kv_len = 64 * 4096;
  large.tile = {4096, 4096};
  struct Row {
    const Request& request;
    SplashRun run;
    const char *jax, *tokamax;  // nullptr: no error
    ErrorKind kind = ErrorKind::invalid;
  };
  const char* const few =
      "[splash] distinct partial tiles must be at most max_blocks 1, found 2";
  const char* const negative =
      "[splash] max_blocks must be 0 or more, found -1";
  const char* const much =
      "[splash] the arrays must fit 2147483648 bytes, found more";
  const Row table[] = {
      {diagonal, {false, 0, 2}, nullptr, nullptr},
      {diagonal, {false, 0, 1}, few, few, ErrorKind::limit},
      {diagonal, {true, 0, -1}, negative, negative},
      // The tile masks alone take the whole limit, 2 GiB.
      {large, {false, 0, 128}, much, much, ErrorKind::limit},
      {diagonal,
       {false, 2, 0},
       nullptr,
       "[splash] heads must be 0 for tokamax, whose heads have one mask, found "
       "2"},
      {heads,
       {false, 0, 0},
       nullptr,
       "[splash] tokamax's heads have one mask, found a batch with 2"},
  };
  const auto expect = [](const auto& made, const char* message,
                         ErrorKind kind) {
    ASSERT_EQ(made.ok(), message == nullptr);
    if (message == nullptr) return;
    EXPECT_EQ(made.error().message, message);
    EXPECT_EQ(made.error().kind, kind);
  };
  for (const Row& row : table) {
    const BorrowedBatch batch = *BorrowedBatch::make(row.request, {});
    expect(make_splash_run(batch, 0, row.run), row.jax, row.kind);
    expect(make_tokamax_run(batch, 0, row.run), row.tokamax, row.kind);
  }
}

}  // namespace
}  // namespace tessera::plan
