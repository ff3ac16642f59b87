// lanes/mosaic/settings_test.cc: the table is complete, the kernels take its
// settings, and a request finds its row by what a contract holds.
#include "lanes/mosaic/settings.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <random>
#include <tuple>
#include <vector>

#include "lanes/mosaic/kernel.h"
#include "lanes/mosaic/vector_memory.h"
#include "tessera/fit.h"
#include "tessera/layouts.h"
#include "tessera/machine.h"
#include "tests/random_case.h"

namespace tessera::mosaic {
namespace {

const char* mask_of(MaskClass mask) {
  switch (mask) {
    case MaskClass::causal:
      return "causal & documents";
    case MaskClass::band:
      return "causal & documents & window(100, 0)";
    case MaskClass::open:
      break;
  }
  return "documents";
}

Request request_of(const std::string& mask, int64_t tokens) {
  Request r;
  r.masks = {*parse_mask(mask)};
  r.q_len = r.kv_len = tokens;
  return r;
}

AttentionCall call_of(bool backward, int64_t dim = 128,
                      Dtype dtype = Dtype::bf16) {
  AttentionCall call;
  call.shape.heads = call.shape.kv_heads = 8;
  call.shape.head_dim = call.shape.v_head_dim = dim;
  call.dtype = dtype;
  call.backward = backward;
  return call;
}

bool is_default(const MosaicSetting& s, bool backward) {
  return s.keys == 0 &&
         s.tile == (backward ? kMosaicBackwardTile : kMosaicTile) &&
         s.options.tiles_per_pass ==
             (backward ? kMosaicBackward : MosaicOptions{}).tiles_per_pass;
}

struct Table {
  int64_t dim = 128;
  Dtype dtype = Dtype::bf16;
};

class MosaicTable : public ::testing::TestWithParam<Table> {
 protected:
  static std::span<const SettingRow> rows() {
    return setting_rows(GetParam().dim, GetParam().dtype);
  }
  static AttentionCall call_of_table(bool backward) {
    return call_of(backward, GetParam().dim, GetParam().dtype);
  }
};
INSTANTIATE_TEST_SUITE_P(Tables, MosaicTable,
                         ::testing::Values(Table{64}, Table{128}, Table{256},
                                           Table{128, Dtype::f32}),
                         [](const auto& of) {
                           const bool narrow = of.param.dtype == Dtype::bf16;
                           return fmt::format("{}_{}", narrow ? "bf16" : "f32",
                                              of.param.dim);
                         });

TEST_P(MosaicTable, HasNoGaps) {
  using Group = std::tuple<bool, MaskClass, int64_t>;
  std::map<Group, std::vector<int64_t>> keys;
  for (const SettingRow& r : rows()) {
    keys[{r.backward, r.mask, r.tokens}].push_back(r.keys);
  }
  for (const bool backward : {false, true}) {
    for (const MaskClass mask :
         {MaskClass::causal, MaskClass::band, MaskClass::open}) {
      int64_t before = 0;
      for (const auto& [group, of] : keys) {
        const auto& [direction, of_mask, tokens] = group;
        if (direction != backward || of_mask != mask) continue;
        EXPECT_TRUE(before == 0 || tokens == 4 * before) << tokens;
        before = tokens;
        for (size_t i = 1; i < of.size(); ++i) EXPECT_EQ(of[i], 2 * of[i - 1]);
        // A query sees at most all keys in the mean or, with bounds, half of
        // them.
        EXPECT_EQ(of.back(), mask == MaskClass::open ? tokens : tokens / 2);
        EXPECT_LE(of.front(), 128);
      }
      EXPECT_EQ(before, 131072);
    }
  }
}

TEST_P(MosaicTable, EveryRowIsAKernel) {
  Facts present;
  present.doc_ids = Ints{};
  const auto all = rows();
  for (size_t i = testing::first_case(all.size()); i < all.size();
       i += testing::case_stride()) {
    const SettingRow& r = all[i];
    for (const int64_t tokens : {r.tokens, r.tokens / 4 + 1}) {
      Request request = request_of(mask_of(r.mask), tokens);
      const MosaicSetting found =
          mosaic_setting(request, call_of_table(r.backward), 2 * r.keys - 1);
      EXPECT_EQ(found.keys, r.keys);
      EXPECT_EQ(found.tile, r.tile);
      EXPECT_EQ(found.options.tiles_per_pass, r.tiles_per_pass);
      request.tile = found.tile;
      auto kernel = make_mosaic_kernel(
          request, present, call_of_table(r.backward), "v6e", found.options);
      EXPECT_TRUE(kernel.ok()) << r.tokens << " tokens, " << r.keys
                               << " keys: " << kernel.error().message;
    }
  }
}

// Tiles that a kernel gets where a request leaves its tile open fill the matrix
// unit of every target.
TEST_P(MosaicTable, EveryTileIsAtLeastTheGranule) {
  std::vector<Tile> tiles = {Request().tile, kMosaicTile, kMosaicBackwardTile};
  for (const SettingRow& r : rows()) tiles.push_back(r.tile);
  AttentionCall alone = call_of_table(false);
  alone.shape.heads = alone.shape.kv_heads = 1;
  for (const MaskClass mask :
       {MaskClass::causal, MaskClass::band, MaskClass::open}) {
    for (int64_t tokens = 2048; tokens <= 131072; tokens *= 4) {
      for (int64_t keys = 32; keys <= tokens; keys *= 2) {
        const Request r = request_of(mask_of(mask), tokens);
        tiles.push_back(mosaic_setting(r, alone, keys).tile);
      }
    }
  }
  for (const Chip& chip : chips()) {
    for (const Tile& tile : tiles) {
      EXPECT_TRUE(tile.q >= chip.granule && tile.kv >= chip.granule)
          << chip.name << ": " << tile.q << "x" << tile.kv;
    }
  }
}

TEST(MosaicSettings, WhatIsNotKnownGetsTheDefault) {
  for (const bool backward : {false, true}) {
    const AttentionCall call = call_of(backward);
    const auto has_none = [&](const Request& r, int64_t keys,
                              const AttentionCall& of, const std::string& why) {
      EXPECT_TRUE(is_default(mosaic_setting(r, of, keys), backward));
      EXPECT_EQ(choose_setting(r, of, keys).chosen_by, "the default: " + why);
    };
    const auto lacks = [&](const Request& r, int64_t keys,
                           const AttentionCall& of) {
      has_none(r, keys, of, "the table has no such row");
    };
    const std::string unsaid = "nobody said how many keys a query sees";
    const Request known = request_of("causal & documents", 8192);
    EXPECT_EQ(mosaic_setting(known, call, 1000).keys, 512);
    has_none(known, 0, call, unsaid);  // nobody knows the documents
    has_none(request_of("chunk(128)", 8192), 0, call, unsaid);
    lacks(request_of("causal", 0), 0, call);
    lacks(request_of("causal", -5), 0, call);
    AttentionCall wide = call;
    wide.shape.v_head_dim = 320;
    lacks(known, 1024, wide);
    AttentionCall half = call;
    half.dtype = Dtype::f16;
    lacks(known, 1024, half);
  }
}

// Takes measured rows for as many keys a query; chosen_by says why.
TEST(MosaicSettings, WhatTheTableLacksTakesTheNearestRow) {
  const Request known = request_of("causal & documents", 8192);
  Request longer = known, by_head = known, none = known;
  longer.kv_len = 32768;
  by_head.masks.push_back(*parse_mask("full"));
  none.masks.clear();
  struct Lacking {
    Request request;
    int64_t keys;
    Request like;
    int64_t of_keys;
    const char* why;
  };
  const Request ends = request_of("causal & documents", 131072);
  const Request starts = request_of("causal & documents", 2048);
  const Lacking all[] = {
      {known, 1, known, 64, ""},
      {known, 1 << 20, known, 4096, ""},
      {request_of("causal & documents", 512), 128, starts, 128,
       "; it has no rows of such lengths"},
      {request_of("causal & documents", 1 << 20), 1 << 17, ends, 65536,
       "; it has no rows of such lengths"},
      {request_of("window(100, -1)", 8192), 1024, known, 1024,
       "; it has no rows of such masks"},
      {request_of("chunk(128)", 8192), 128, known, 128,
       "; it has no rows of such masks"},
      {by_head, 1024, known, 1024, "; it has no rows of such masks"},
      {none, 1024, known, 1024, "; it has no rows of such masks"},
      {longer, 1024, request_of("causal & documents", 32768), 1024,
       "; it has no rows of fewer queries than keys"},
  };
  for (const Lacking& l : all) {
    for (const bool backward : {false, true}) {
      const AttentionCall call = call_of(backward);
      const ChosenSetting got = choose_setting(l.request, call, l.keys);
      const MosaicSetting due = mosaic_setting(l.like, call, l.of_keys);
      EXPECT_EQ(got.setting.keys, l.of_keys);
      EXPECT_EQ(due.keys, l.of_keys);
      EXPECT_EQ(got.setting.tile, due.tile);
      EXPECT_EQ(got.setting.options.tiles_per_pass, due.options.tiles_per_pass);
      EXPECT_EQ(got.chosen_by, fmt::format("the table, for {} keys a query{}",
                                           l.of_keys, l.why));
      // A given tile gets the passes that suit it.
      Request tiled = l.request;
      tiled.tile = due.tile;
      EXPECT_EQ(choose_passes(tiled, call, l.keys).chosen_by, got.chosen_by);
    }
  }
}

// Takes the table of the larger dim, or of the next with a table; chosen_by
// says which.
TEST(MosaicSettings, OtherDimsHaveTheTableOfTheNext) {
  struct Pair {
    int64_t dim, v_dim, table;
  };
  const Request r = request_of("causal & documents", 8192);
  for (const Pair& p :
       {Pair{64, 128, 128}, Pair{128, 64, 128}, Pair{192, 128, 256},
        Pair{192, 192, 256}, Pair{64, 256, 256}}) {
    for (const bool backward : {false, true}) {
      AttentionCall call = call_of(backward, p.dim);
      call.shape.v_head_dim = p.v_dim;
      const ChosenSetting found = choose_setting(r, call, 1000);
      const MosaicSetting due =
          mosaic_setting(r, call_of(backward, p.table), 1000);
      EXPECT_EQ(found.setting.tile, due.tile);
      EXPECT_EQ(found.setting.options.tiles_per_pass,
                due.options.tiles_per_pass);
      EXPECT_EQ(found.chosen_by,
                fmt::format("the table of head dim {}, for 512 keys a query",
                            p.table));
    }
  }
}

// The tile is kept, and passes are those of a row with this tile: the row for
// the request's number of keys if that is known, else the first.
TEST_P(MosaicTable, AGivenTileHasThePassesOfItsRow) {
  for (const SettingRow& r : rows()) {
    const SettingRow* first = nullptr;
    for (const SettingRow& other : rows()) {
      if (first == nullptr && other.backward == r.backward &&
          other.mask == r.mask && other.tokens == r.tokens &&
          other.tile == r.tile) {
        first = &other;
      }
    }
    for (const int64_t tokens : {r.tokens, r.tokens / 4 + 1}) {
      Request request = request_of(mask_of(r.mask), tokens);
      request.tile = r.tile;
      const AttentionCall call = call_of_table(r.backward);
      const ChosenSetting told = choose_passes(request, call, r.keys);
      EXPECT_EQ(told.setting.tile, r.tile);
      EXPECT_EQ(told.setting.options.tiles_per_pass, r.tiles_per_pass);
      EXPECT_EQ(told.chosen_by,
                fmt::format("the table{}, for {} keys a query",
                            GetParam().dtype == Dtype::f32 ? " of float32" : "",
                            r.keys));
      const ChosenSetting open = choose_passes(request, call);
      EXPECT_EQ(open.setting.options.tiles_per_pass, first->tiles_per_pass);
      EXPECT_EQ(open.setting.keys, first->keys);
      // A tile that no row has.
      request.tile = {128, 640};
      const ChosenSetting none = choose_passes(request, call, r.keys);
      EXPECT_EQ(none.setting.tile, request.tile);
      EXPECT_EQ(none.setting.keys, 0);
      EXPECT_EQ(
          none.setting.options.tiles_per_pass,
          (r.backward ? kMosaicBackward : MosaicOptions{}).tiles_per_pass);
      EXPECT_EQ(none.chosen_by, "the default: the table has no such row");
    }
  }
}

// A mask without documents says how many keys a query sees. The test counts
// pairs, with the bounds' classes in place of the bounds.
TEST(MosaicSettings, AMaskOfBoundsIsCounted) {
  std::mt19937 random(5);
  for (int i = 0; i < 200; ++i) {
    const int64_t tokens = 513 + random() % 3500;
    const int64_t left = random() % 3000;
    const bool causal = random() % 2 == 0;
    const int64_t right = causal ? 0 : random() % 3000;
    const bool open = random() % 8 == 0;
    const std::string mask =
        open ? "full" : fmt::format("window({}, {})", left, right);
    const int64_t n = bucket(tokens);
    const auto folded = [](int64_t bound) {
      int64_t out = 1;
      while (out < bound) out *= 2;
      return bound == 0 ? 0 : out;
    };
    int64_t pairs = 0;
    for (int64_t q = 0; q < n; ++q) {
      const int64_t first = open ? 0 : std::max<int64_t>(0, q - folded(left));
      const int64_t last = open ? n - 1 : std::min(n - 1, q + folded(right));
      pairs += last - first + 1;
    }
    const Request request = request_of(mask, tokens);
    const MosaicSetting a = mosaic_setting(request, call_of(false));
    const MosaicSetting b = mosaic_setting(request, call_of(false), pairs / n);
    EXPECT_EQ(a.keys, b.keys) << mask << " " << tokens;
    EXPECT_EQ(a.tile, b.tile);
    // One contract gives one setting.
    EXPECT_EQ(mosaic_setting(request_of(mask, n), call_of(false)).keys, a.keys);
  }
}

// Of all settings that may be taken instead, in order, the first is taken that
// fits plan_kernel's memory; on v6e the whole table fits as it is.
TEST(MosaicSettings, WhatDoesNotFitIsTheLargestThatDoes) {
  // Backward, dQ of all queries comes first, then chunks.
  const auto lacks_memory = [](Request r, const AttentionCall& call,
                               const Chip& chip, const Tile& tile,
                               MosaicOptions options, bool in_chunks) {
    r.tile = tile;
    if (call.backward && !in_chunks) options.query_chunk = tile.q << 20;
    const auto kernel =
        plan_kernel(r, {}, call, std::string(chip.target), options);
    if (kernel) return false;
    EXPECT_NE(kernel.error().message.find("of vector memory"),
              std::string::npos)
        << kernel.error().message;
    return true;
  };
  std::map<std::string_view, int> smaller, chunked, none;
  for (const Chip& chip : chips()) {
    const std::string target(chip.target);
    for (const int64_t dim : {64, 128, 256}) {
      for (const Dtype dtype : {Dtype::bf16, Dtype::f32}) {
        for (const int64_t tokens : {2048, 32768}) {
          for (const bool backward : {false, true}) {
            const Request r = request_of("causal", tokens);
            AttentionCall call = call_of(backward, dim);
            call.dtype = dtype;
            const ChosenSetting found = choose_setting(r, call, 0);
            const ChosenSetting fit =
                fit_setting(found, {.tile = true}, r, {}, call, target);
            const auto first = [&](bool in_chunks) {
              std::optional<MosaicSetting> due;
              for (Tile t = found.setting.tile;
                   !due && t.q >= chip.granule && t.kv >= chip.granule;
                   (t.q > t.kv ? t.q : t.kv) /= 2) {
                for (int64_t n = found.setting.options.tiles_per_pass; n > 0;
                     n /= 2) {
                  for (int64_t a = found.setting.options.fetch_ahead; a > 0;
                       a /= 2) {
                    if (due ||
                        lacks_memory(r, call, chip, t, {n, a}, in_chunks)) {
                      continue;
                    }
                    due = {t, {n, a}, 0};
                  }
                }
              }
              return due;
            };
            std::optional<MosaicSetting> due = first(false);
            chunked[chip.name] += !due;
            if (!due) due = first(true);
            const MosaicSetting& got = fit.setting;
            const MosaicSetting& want = due ? *due : found.setting;
            EXPECT_EQ(got.tile, want.tile) << target << " " << dim;
            EXPECT_EQ(got.options.tiles_per_pass, want.options.tiles_per_pass);
            EXPECT_EQ(got.options.fetch_ahead, want.options.fetch_ahead);
            const bool same =
                got.tile == found.setting.tile &&
                got.options.tiles_per_pass ==
                    found.setting.options.tiles_per_pass &&
                got.options.fetch_ahead == found.setting.options.fetch_ahead;
            EXPECT_EQ(fit.chosen_by,
                      same ? found.chosen_by
                           : fmt::format("{}; the largest of it that fits the "
                                         "vector memory of {}",
                                         found.chosen_by, chip.name));
            smaller[chip.name] += !same;
            none[chip.name] += !due;
            // What the caller set is kept.
            const ChosenSetting said =
                fit_setting(found, {false, false, false}, r, {}, call, target);
            EXPECT_EQ(said.chosen_by, found.chosen_by);
            EXPECT_EQ(said.setting.options.fetch_ahead,
                      found.setting.options.fetch_ahead);
          }
        }
      }
    }
  }
  EXPECT_GE(smaller["v4"], 6);
  EXPECT_GE(chunked["v4"], 1);  // as dQ of one head is too large
  EXPECT_EQ(none["v4"], 0);
  for (const SettingRow& row : setting_rows(128)) {
    const Request r = request_of(mask_of(row.mask), row.tokens);
    const ChosenSetting found =
        choose_setting(r, call_of(row.backward), row.keys);
    Facts present;
    present.doc_ids = Ints{};
    const ChosenSetting fit = fit_setting(found, {.tile = true}, r, present,
                                          call_of(row.backward), "v6e:1x1");
    EXPECT_EQ(fit.chosen_by, found.chosen_by);
  }
}

// Ids of a whole batch row are in vector memory, 4 bytes a query and 4 a key.
// For one length bucket more, the ids alone leave no room.
TEST(MosaicSettings, RowsAreAsLongAsVectorMemoryHoldsTheirIds) {
  constexpr int64_t kMi = 1 << 20;
  struct Longest {
    int64_t forward, backward;  // 0: the limit on passes comes first
  };
  const std::map<std::string_view, Longest> longest = {
      {"v4", {kMi / 2, kMi}},
      {"v5p", {2 * kMi, 4 * kMi}},
      {"tpu7x", {2 * kMi, 4 * kMi}},
      {"v5e", {4 * kMi, 0}},
      {"v6e", {4 * kMi, 0}}};
  Facts present;
  present.doc_ids = Ints{};
  for (const Chip& chip : chips()) {
    const std::string target(chip.target);
    for (const bool backward : {false, true}) {
      const Longest& of = longest.at(chip.name);
      const int64_t most = backward ? of.backward : of.forward;
      if (most == 0) continue;
      const AttentionCall call = call_of(backward);
      const auto made = [&](int64_t tokens) {
        Request r = request_of("causal & documents", tokens);
        const ChosenSetting fit =
            fit_setting({{{512, 512}, kMosaicBackward, 0}, ""}, {.tile = true},
                        r, present, call, target);
        r.tile = fit.setting.tile;
        return make_mosaic_kernel(r, present, call, target,
                                  fit.setting.options);
      };
      const auto kernel = made(most);
      EXPECT_TRUE(kernel.ok())
          << target << " " << most << ": " << kernel.error().message;
      const auto longer = made(most + 1);
      ASSERT_FALSE(longer) << target << " " << most;
      const int64_t room =
          vector_room(find_target(chip.name)->vector_bytes, backward);
      const std::string& why = longer.error().message;
      EXPECT_TRUE(why.starts_with(
          fmt::format("[mosaic] the scratch must fit {} bytes of vector "
                      "memory, found ",
                      room)))
          << why;
      EXPECT_TRUE(why.ends_with(
          fmt::format(" ({} of them are the ids of a batch row's queries and "
                      "keys: shorter rows)",
                      8 * bucket(most + 1))))
          << why;
    }
  }
  // If ids do not fill the memory, a smaller tile may help.
  Request r = request_of("causal & documents", kMi / 2);
  r.tile = {512, 512};
  const auto kernel =
      make_mosaic_kernel(r, present, call_of(false), "v4", kMosaicBackward);
  ASSERT_FALSE(kernel);
  EXPECT_TRUE(kernel.error().message.ends_with(
      " (4194304 of them are the ids of a batch row's queries and keys: "
      "shorter rows, or a smaller tile)"))
      << kernel.error().message;
}

// Granule tiles would be too many for a step's word; the larger tile fits in
// chunks of queries.
TEST(MosaicSettings, ATileTooSmallForTheLengthIsNotTaken) {
  Facts present;
  present.doc_ids = Ints{};
  Request r = request_of("causal & documents", int64_t{3} << 20);
  for (const char* target : {"v5e:2x2", "v5p:2x2x1", "v6e:1x1"}) {
    const ChosenSetting fit =
        fit_setting({{{512, 512}, kMosaicBackward, 0}, ""}, {.tile = true}, r,
                    present, call_of(true), target);
    EXPECT_EQ(fit.setting.tile, (Tile{512, 512})) << target;
    r.tile = fit.setting.tile;
    const auto kernel = make_mosaic_kernel(r, present, call_of(true), target,
                                           fit.setting.options);
    EXPECT_TRUE(kernel.ok()) << target << ": " << kernel.error().message;
    EXPECT_GT(kernel->query_chunk, 0) << target;
  }
}

// Rows were made for v6e, eight heads or one, each with keys of its own, finite
// numbers, exact sums and no cap.
TEST(MosaicSettings, ABorrowedRowIsSaidToBeOne) {
  const auto words = [](AttentionCall call, std::string_view target,
                        MosaicOptions options = {}, bool on_mesh = false) {
    return borrowed_words({{512, 512}, std::move(options), 64}, call, target,
                          on_mesh);
  };
  const std::string of = "; borrowed, for its rows are of ";
  MosaicOptions any, rounded;
  any.numbers = Numbers::any;
  rounded.row_sum = RowSum::rounded;
  for (const bool backward : {false, true}) {
    const AttentionCall call = call_of(backward);
    EXPECT_EQ(words(call, "v6e"), "");
    EXPECT_EQ(words(call, "v6e:2x2"), "");
    EXPECT_EQ(words(call, ""), "");  // no target
    for (const Chip& chip : chips()) {
      EXPECT_EQ(words(call, chip.target), chip.name == "v6e" ? "" : of + "v6e");
    }
    EXPECT_EQ(words(call, "v6e", any), of + "finite numbers");
    EXPECT_EQ(words(call, "v6e", rounded), of + "exact row sums");
    EXPECT_EQ(words(call, "v6e", {}, true), of + "one device");
    EXPECT_EQ(words(call, "v4", any, true),
              of + "v6e, one device, finite numbers");
    AttentionCall other = call;
    other.shape.softcap = 30;
    EXPECT_EQ(words(other, "v6e"), of + "scores without a cap");
    other = call;
    other.shape.kv_heads = 2;
    EXPECT_EQ(words(other, "v6e"), of + "heads with keys of their own");
    const auto heads = [&](int64_t n) {
      other = call;
      other.shape.heads = other.shape.kv_heads = n;
      return words(other, "v6e");
    };
    EXPECT_EQ(heads(16), "");
    EXPECT_EQ(heads(6), of + "8 heads");
    EXPECT_EQ(heads(4), backward ? "" : of + "8 heads");
    EXPECT_EQ(heads(3), of + (backward ? "8 heads" : "1 head"));
    EXPECT_EQ(heads(1), backward ? of + "8 heads" : "");
    // Float32 goes a head at a time, by the table of head dim 128.
    other.dtype = Dtype::f32;
    EXPECT_EQ(words(other, "v6e"), "");
    EXPECT_EQ(words(call_of(backward, 64, Dtype::f32), "v6e"),
              of + "head dim 128");
    EXPECT_EQ(words(call_of(backward, 64), "v6e"), "");
    // The default setting is not borrowed.
    EXPECT_EQ(borrowed_words({{512, 256}, any, 0}, call, "v4"), "");
  }
}

TEST(MosaicSettings, WordsSayTheChunkOfQueries) {
  MosaicKernel kernel;
  kernel.options.tiles_per_pass = 2;
  EXPECT_EQ(setting_words(kernel, "the table"), "2 tiles a pass: the table");
  kernel.query_chunk = 1024;
  EXPECT_EQ(setting_words(kernel, "the table"),
            "2 tiles a pass in chunks of 1024 queries: the table");
}

TEST(MosaicSettings, KeysAQueryAreTheLegalPairs) {
  const std::vector<int32_t> ids = {3, 3, 3, 3, 7, 7, -1, -1};
  Facts facts;
  facts.doc_ids = Ints(ids);
  Request request = request_of("documents", 8);
  request.tile = {8, 8};
  auto batch = BorrowedBatch::make(request, facts);
  ASSERT_TRUE(batch.ok()) << batch.error().message;
  EXPECT_EQ(keys_per_query(*batch), (16 + 4) / 8);
}

}  // namespace
}  // namespace tessera::mosaic
