// lanes/mosaic/region_trips_test.cc: how often each region runs for a batch.
#include "lanes/mosaic/region_trips.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "lanes/mosaic/shards.h"
#include "tests/lowering.h"

namespace tessera::mosaic {
namespace {

Request request_of(int64_t batch) {
  Request out;
  out.masks = {*parse_mask("causal & documents")};
  out.batch = batch;
  out.q_len = out.kv_len = 1024;
  out.tile = {256, 128};
  return out;
}

Result<std::vector<schedule::TripRule>> trips(const std::vector<int32_t>& ids,
                                              bool backward, int64_t heads = 4,
                                              int64_t kv_heads = 2,
                                              int64_t page_steps = 0,
                                              int64_t query_chunk = 0) {
  Facts facts;
  facts.doc_ids = ids;
  const Request request = request_of(static_cast<int64_t>(ids.size()) / 1024);
  AttentionCall call;
  call.shape = {heads, kv_heads, 128, 128, {}, 0};
  call.dtype = Dtype::bf16;
  call.backward = backward;
  MosaicOptions options = backward ? kMosaicBackward : MosaicOptions{};
  options.page_steps = page_steps;
  options.query_chunk = query_chunk;
  options.lowering_reason = testing::lowering_reason(request.tile);
  auto kernel = make_mosaic_kernel(request, facts, call, "v6e:1x1", options);
  if (!kernel) return kernel.error();
  auto batch = BorrowedBatch::make(request, facts);
  if (!batch) return batch.error();
  return region_trips(*batch, *kernel);
}

TEST(MosaicTrips, AreThoseOfEachRow) {
  std::vector<int32_t> all;
  std::vector<std::vector<int32_t>> rows(3);
  for (int32_t r = 0; r < 3; ++r) {
    for (int32_t i = 0; i < 1024; ++i) {
      rows[r].push_back(i < 1000 ? i / (90 + 300 * r) : -1);
    }
    all.insert(all.end(), rows[r].begin(), rows[r].end());
  }
  for (const bool backward : {false, true}) {
    const auto together = trips(all, backward);
    ASSERT_TRUE(together) << together.error().message;
    // The loop over the rows comes last.
    EXPECT_EQ(together->back(), (schedule::TripRule{"grid", 3}));
    std::vector<double> sum(together->size() - 1);
    double loops = 0;
    for (const auto& row : rows) {
      const auto alone = trips(row, backward);
      ASSERT_TRUE(alone) << alone.error().message;
      ASSERT_EQ(alone->size(), sum.size());
      for (size_t i = 0; i < sum.size(); ++i) {
        EXPECT_EQ((*alone)[i].region, (*together)[i].region);
        sum[i] += (*alone)[i].trips;
        loops += (*alone)[i].as_loop.value_or(0);
      }
    }
    for (size_t i = 0; i < sum.size(); ++i) {
      const schedule::TripRule& rule = (*together)[i];
      EXPECT_EQ(rule.trips, sum[i]) << rule.region;
      EXPECT_EQ(rule.as_loop.has_value(), rule.region == "fetch");
      EXPECT_EQ(rule.kind == schedule::RegionKind::loop, rule.region == "pass");
      if (rule.as_loop) {
        EXPECT_EQ(rule.as_loop, loops);
      }
    }
    // If the fetch's ops name a loop, the loop is that over the passes.
    const auto of = [&](std::string_view region) {
      return *std::ranges::find(*together, region, &schedule::TripRule::region);
    };
    EXPECT_EQ(of("fetch").as_loop, of("pass").trips);
  }
}

// Trips are those of one head for each group of heads in a pass, but the pass
// before the loop and the row's end after it occur once in all.
TEST(MosaicTrips, AreThoseOfOneHeadForEachPassOfHeads) {
  std::vector<int32_t> ids(1024);
  for (int32_t i = 0; i < 1024; ++i) ids[i] = i < 1000 ? 0 : -1;
  const auto one = trips(ids, false, 1, 1);
  ASSERT_TRUE(one) << one.error().message;
  struct Heads {
    int64_t heads, kv_heads, walks;
  };
  for (const Heads& h : {Heads{7, 7, 1}, Heads{8, 2, 1}, Heads{10, 5, 5},
                         Heads{12, 12, 2}, Heads{13, 13, 13}}) {
    const auto all = trips(ids, false, h.heads, h.kv_heads);
    ASSERT_TRUE(all) << all.error().message;
    ASSERT_EQ(all->size(), one->size());
    for (size_t i = 0; i < all->size(); ++i) {
      const std::string region = (*one)[i].region;
      const bool is_less = region == "pass" || region == "finish";
      if (!is_less && region != "full") continue;
      EXPECT_EQ((*all)[i].trips + is_less,
                static_cast<double>(h.walks) * ((*one)[i].trips + is_less))
          << region << " of " << h.heads << " heads";
    }
  }
}

// The same backward: work of a pass or a tile occurs once for all its heads,
// work of keys once for all heads that share them.
TEST(MosaicTrips, BackwardAreThoseOfOneHeadForEachPassOfHeads) {
  std::vector<int32_t> ids(1024);
  for (int32_t i = 0; i < 1024; ++i) ids[i] = i < 1000 ? i / 600 : -1;
  const auto one = trips(ids, true, 1, 1);
  ASSERT_TRUE(one) << one.error().message;
  struct Heads {
    int64_t heads, kv_heads, walks, of_keys;
  };
  for (const Heads& h :
       {Heads{7, 7, 7, 7}, Heads{8, 2, 2, 2}, Heads{8, 1, 2, 1},
        Heads{10, 5, 5, 5}, Heads{12, 12, 3, 3}, Heads{12, 2, 4, 2}}) {
    const auto all = trips(ids, true, h.heads, h.kv_heads);
    ASSERT_TRUE(all) << all.error().message;
    ASSERT_EQ(all->size(), one->size());
    double rows = 0, rows_of_one = 0;  // fetched; how far ahead differs
    for (size_t i = 0; i < all->size(); ++i) {
      const std::string& region = (*one)[i].region;
      const double of_one = (*one)[i].trips;
      const double found = (*all)[i].trips;
      EXPECT_EQ((*all)[i].region, region);
      if (region == "first_rows" || region == "fetch_row") {
        rows += found;
        rows_of_one += of_one;
        continue;
      }
      const bool is_once = region == "batch_row" || region == "grid";
      const bool is_of_keys = region == "clear" || region == "finish_column";
      const int64_t times = is_once ? 1 : is_of_keys ? h.of_keys : h.walks;
      EXPECT_EQ(found, static_cast<double>(times) * of_one)
          << region << " of " << h.heads << " heads";
    }
    EXPECT_EQ(rows, static_cast<double>(h.walks) * rows_of_one);
  }
}

// Forward, each page is a walk of its own, including what is before and after
// the loop; backward a head's passes continue over pages, except for the copies
// that begin a page.
TEST(MosaicTrips, OfPagesAreThoseOfTheirList) {
  std::vector<int32_t> ids(1024);
  for (int32_t i = 0; i < 1024; ++i) ids[i] = i < 1000 ? i / 600 : -1;
  for (const bool backward : {false, true}) {
    const auto by_name = [&](int64_t page_steps) {
      std::map<std::string, double> out;
      auto found = trips(ids, backward, 4, 2, page_steps);
      EXPECT_TRUE(found) << found.error().message;
      for (const auto& rule : *found) out[rule.region] = rule.trips;
      return out;
    };
    auto list = by_name(0);
    auto pages = by_name(8);  // pages of one row or two
    EXPECT_FALSE(list.contains("page"));
    EXPECT_GT(pages["page"], 1);
    EXPECT_GT(pages["first_fetch"], list["first_fetch"]);
    EXPECT_EQ(pages["fetch"] + pages["first_fetch"],
              list["fetch"] + list["first_fetch"]);
    if (backward) {
      for (const char* same :
           {"pass", "full", "partial", "column", "prepare"}) {
        EXPECT_EQ(pages[same], list[same]) << same;
      }
      continue;
    }
    const double walks = pages["page"];
    EXPECT_EQ(pages["batch_row"], walks);
    EXPECT_EQ(pages["pass"] + walks, list["pass"] + 1);
    EXPECT_EQ(pages["finish"] + walks, list["finish"] + 1);
    EXPECT_EQ(pages["full"] + pages["partial"], pages["pass"]);
  }
}

// A list's tiles are walked once, however it is cut; a column's sums go out
// once, and partial sums come in again.
TEST(MosaicTrips, OfChunksAreThoseOfTheirList) {
  std::vector<int32_t> ids(2048);
  for (int32_t i = 0; i < 2048; ++i) ids[i] = i % 1024 < 1000 ? i / 600 : -1;
  struct Heads {
    int64_t heads, kv_heads;
  };
  for (const Heads& h : {Heads{4, 4}, Heads{4, 2}, Heads{5, 1}}) {
    const auto by_name = [&](int64_t query_chunk) {
      std::map<std::string, double> out;
      auto found = trips(ids, true, h.heads, h.kv_heads, 0, query_chunk);
      EXPECT_TRUE(found) << found.error().message;
      for (const auto& rule : *found) out[rule.region] = rule.trips;
      return out;
    };
    auto list = by_name(0);
    for (const int64_t chunk : {256, 512, 768}) {
      auto chunks = by_name(chunk);
      for (const char* same : {"batch_row", "prepare", "finish_row", "clear",
                               "finish_column", "full", "grid"}) {
        EXPECT_EQ(chunks[same], list[same]) << same << " of " << chunk;
      }
      EXPECT_EQ(chunks["chunk"], chunks["head"]);
      EXPECT_EQ(chunks["head"], list["head"] * ((1024 + chunk - 1) / chunk));
      EXPECT_GE(chunks["pass"], list["pass"]);
      EXPECT_EQ(chunks["full"] + chunks["partial"], chunks["pass"]);
      EXPECT_EQ(chunks["first_columns"] + chunks["fetch_column"],
                chunks["column"]);
      EXPECT_EQ(chunks["first_sums"] + chunks["fetch_sums"],
                chunks["wait_sums"]);
      EXPECT_EQ(chunks["wait_sums"], chunks["send_sums"]);
      EXPECT_EQ(chunks["clear"] + chunks["wait_sums"], chunks["column"]);
      EXPECT_GT(chunks["send_sums"], 0);
    }
  }
}

// Repeats the kernels' walks (pass_loop.cc, backward.cc) step by step over the
// arrays that they read, and counts how often each region runs.
//
// In a call in parts, regions of one name are distinguished by the region
// around them, and a branch within a loop of its name by a "?".
class Walk {
 public:
  // `rows` of a call in parts, which continues in another's arrays if `late`.
  Walk(const MosaicKernel& kernel, const MosaicArrays& arrays,
       std::span<const int32_t> rows = {}, bool late = false)
      : k_(kernel),
        a_(arrays),
        rows_(rows),
        late_(late),
        tiles_(kernel.options.tiles_per_pass),
        ahead_(kernel.options.fetch_ahead),
        group_(kernel.call.shape.heads / kernel.call.shape.kv_heads),
        of_list_(kernel.call.shape.heads / kernel.plan_heads),
        chunk_(kernel.query_chunk > 0 ? kernel.query_chunk : kernel.q_len),
        chunks_((kernel.q_len + chunk_ - 1) / chunk_),
        lists_(kernel.batch * kernel.plan_heads * chunks_),
        pages_(kernel.page > 0 ? kernel.steps / kernel.page / lists_ : 1) {}

  std::map<std::string, double> counts() {
    const bool backward = k_.call.backward;
    const int64_t grid = backward ? lists_ / chunks_ : lists_ * pages_;
    for (int64_t n = 0; n < grid; ++n) {
      const Range first = backward ? page(n * chunks_, 0) : page(0, n);
      if (first.begin == first.end) continue;
      ++out_["batch_row"];
      if (backward) {
        list(n);
      } else {
        if (k_.page > 0) ++out_["page"];
        forward(first, n / pages_);
      }
    }
    if (grid > 1) out_["grid"] = static_cast<double>(grid);
    // Removes what is walked but is no region of such a kernel.
    if (k_.options.numbers == Numbers::finite) out_.erase("masked");
    if (k_.query_chunk > 0) return out_;
    if (rows_.empty()) out_.erase("wait_rows");
    for (const char* of_chunks : {"heads", "chunk", "first_sums", "fetch_sums",
                                  "wait_sums", "send_sums"}) {
      out_.erase(of_chunks);
    }
    return out_;
  }

 private:
  struct Range {
    int64_t begin = 0, end = 0;
  };
  // The steps of a list's page.
  Range page(int64_t list, int64_t n) const {
    const int64_t at = list * pages_ + n;
    const auto word = [&](int64_t i) -> int64_t {
      return a_.range[static_cast<size_t>(i)];
    };
    if (k_.page == 0) return {word(at), word(at + 1)};
    return {at * k_.page, at * k_.page + word(at)};
  }
  Step step(int64_t at) const {
    return {static_cast<uint32_t>(a_.steps[static_cast<size_t>(at)])};
  }
  bool any_of(int64_t at, auto is) const {
    for (int64_t t = 0; t < tiles_; ++t) {
      if (is(step(at + t))) return true;
    }
    return false;
  }
  bool masked(int64_t at) const {
    return any_of(at, [](Step s) { return s.step_class() != 2; });
  }
  void count(const char* region, bool if_so) { out_[region] += if_so; }

  // The `rows` words of a list, or of its chunk.
  std::span<const int32_t> words(int64_t list) const {
    const int64_t each = 2 + chunk_ / k_.tile.q;
    return rows_.subspan(static_cast<size_t>(list * each),
                         static_cast<size_t>(each));
  }
  bool has(int32_t word, int32_t flag) const { return (word & flag) != 0; }

  // A forward pass of a call in parts: its row's sums may come from an earlier
  // call, and wait for a later one.
  void row_of_pass(int64_t at, int64_t list, bool is_last) {
    const auto row = static_cast<size_t>(step(at).row());
    const int32_t word = words(list)[2 + row];
    if (late_) {
      const bool goes_on = step(at).first() && !has(word, 2);
      count(is_last ? "resume?" : "pass/resume?", goes_on);
      count("resume", !is_last);  // the loop, if it has this name
    } else if (step(at + tiles_ - 1).last()) {
      const bool is_sent = has(word, 1);
      count(is_last ? "last_finish" : "finish/finish", is_sent);
      count(is_last ? "leave" : "finish/leave", !is_sent);
    }
  }

  void forward(const Range& own, int64_t list) {
    const int64_t of_head = (own.end - own.begin) / tiles_;
    const int64_t passes = of_head * (of_list_ / k_.heads_per_pass);
    const auto at = [&](int64_t pass) {
      return own.begin + pass % of_head * tiles_;
    };
    const auto vetoed = [&](int64_t pass) {
      return any_of(at(pass), [](Step s) { return s.step_class() == 3; });
    };
    for (int64_t pass = 0; pass < std::min(passes, ahead_); ++pass) {
      ++out_["first_fetch"];
      count("first_bits", pass == 0 || masked(at(pass)));
    }
    count("first_clean", vetoed(0));
    for (int64_t i = 0; i < passes && !rows_.empty(); ++i) {
      row_of_pass(at(i), list, i + 1 == passes);
    }
    for (int64_t i = 0; i + 1 < passes; ++i) {
      ++out_["pass"];
      if (i + ahead_ < passes) {
        ++out_["fetch"];
        count("bits", masked(at(i + ahead_)));
      }
      ++out_[masked(at(i + 1)) ? "partial" : "full"];
      count("clean", vetoed(i + 1));
      count("finish", step(at(i) + tiles_ - 1).last());
    }
  }

  struct Chunk {
    int64_t first = 0, end = 0, begins = 0, ends = 0;
  };
  Chunk chunk_columns(int64_t list) const {
    if (k_.query_chunk == 0) {
      if (rows_.empty()) return {0, k_.kv_len / k_.tile.kv, 0, 0};
      Chunk out = {words(list)[1], 0, 0, 0};
      for (int64_t n = 0; n < pages_; ++n) {
        const Range own = page(list, n);
        if (own.begin < own.end) out.end = step(own.end - 1).row() + 1;
      }
      return out;
    }
    const size_t at =
        a_.range.size() - static_cast<size_t>(4 * (lists_ - list));
    return {a_.range[at], a_.range[at + 1], a_.range[at + 2], a_.range[at + 3]};
  }

  void list(int64_t n) {
    const int64_t first = n % k_.plan_heads * of_list_;
    for (int64_t h = first; h < first + of_list_; h += k_.heads_per_pass) {
      ++out_["heads"];
      for (int64_t c = 0; c < chunks_; ++c) {
        ++out_["chunk"];
        const int64_t queries = std::min(chunk_, k_.q_len - c * chunk_);
        head(h, n * chunks_ + c, queries / k_.tile.q);
      }
    }
  }

  // Whether an earlier chunk or head has added to a column's sums, and whether
  // a later one will (stays).
  bool goes_on(int64_t head, int64_t column, const Chunk& c) const {
    const bool turns = group_ > k_.heads_per_pass;
    return (k_.query_chunk > 0 && column < c.begins) ||
           (turns && head % group_ != 0);
  }
  bool stays(int64_t head, int64_t column, const Chunk& c) const {
    const bool turns = group_ > k_.heads_per_pass;
    return (k_.query_chunk > 0 && column >= c.ends) ||
           (turns && head % group_ + k_.heads_per_pass != group_);
  }

  void head(int64_t head, int64_t list, int64_t rows) {
    const Chunk c = chunk_columns(list);
    ++out_["head"];
    for (int64_t at = c.first; at < std::min(c.end, c.first + ahead_); ++at) {
      ++out_["first_columns"];
      count("first_sums", goes_on(head, at, c));
    }
    const int64_t rows_ahead = k_.heads_per_pass > 1 ? 1 : 3;
    if (!rows_.empty()) rows = words(list)[0];
    int64_t sent = 0;
    for (int64_t r = 0; r < rows; ++r) {
      if (!rows_.empty()) {
        const int32_t word = words(list)[static_cast<size_t>(2 + r)];
        count("prepare?", has(word, 2));
        count("finish_row?", has(word, 1));
        count("wait_left", !has(word, 1));
        sent += has(word, 1);
      } else {
        ++sent;
      }
      ++out_[r < rows_ahead ? "first_rows" : "fetch_row"];
      ++out_["prepare"];
      ++out_["finish_row"];
    }
    out_["wait_rows"] += static_cast<double>(std::min<int64_t>(sent, 2));
    for (int64_t n = 0; n < pages_; ++n) passes(head, page(list, n), c);
  }

  void passes(int64_t head, const Range& own, const Chunk& c) {
    count("page", k_.page > 0);  // empty pages are loaded too
    for (int64_t at = own.begin; at < own.end; at += tiles_) {
      const bool is_ahead = at - own.begin < 2 * tiles_;
      ++out_[is_ahead ? "first_fetch" : "fetch"];
      count(is_ahead ? "first_bits" : "bits", masked(at));
      ++out_["pass"];
      ++out_[masked(at) ? "partial" : "full"];
      count("masked", masked(at));
      const int64_t column = step(at).row();
      if (step(at).first()) {
        ++out_["column"];
        if (column + ahead_ < c.end) {
          ++out_["fetch_column"];
          count("fetch_sums", goes_on(head, column + ahead_, c));
        }
        ++out_[goes_on(head, column, c) ? "wait_sums" : "clear"];
      }
      if (!step(at + tiles_ - 1).last()) continue;
      ++out_[stays(head, column, c) ? "send_sums" : "finish_column"];
    }
  }

  const MosaicKernel& k_;
  const MosaicArrays& a_;
  std::span<const int32_t> rows_;
  bool late_ = false;
  int64_t tiles_, ahead_, group_, of_list_, chunk_, chunks_, lists_, pages_;
  std::map<std::string, double> out_;
};

// Compares in both directions, so that no region is missed; a region that never
// runs may be left out.
void expect_told(const std::vector<schedule::TripRule>& rules,
                 std::map<std::string, double> walked) {
  std::map<std::string, double> told;
  for (const schedule::TripRule& r : rules) {
    const std::string name =
        (r.inside.empty() ? "" : r.inside + "/") + r.region +
        (r.kind == schedule::RegionKind::branch ? "?" : "");
    EXPECT_TRUE(told.emplace(name, r.trips).second) << name;
  }
  const auto never = [](const auto& region) { return region.second == 0; };
  std::erase_if(told, never);
  std::erase_if(walked, never);
  EXPECT_EQ(told, walked);
}

struct OfHeads {
  std::vector<const char*> masks;
  int64_t pick_heads, heads, kv_heads;
};

// A kernel walks the list of each head with a mask or picks of its own. Sums
// that heads of several lists share are begun by one list and ended by another.
void expect_walked(const OfHeads& of, AttentionCall call,
                   const MosaicOptions& options) {
  Request request = request_of(2);
  request.masks.clear();
  for (const char* mask : of.masks) request.masks.push_back(*parse_mask(mask));
  std::vector<int32_t> ids, picks;
  for (int32_t i = 0; i < 2048; ++i) {
    ids.push_back(i % 1024 < 1000 ? i / 600 : -1);
  }
  Facts facts;
  facts.doc_ids = ids;
  if (of.pick_heads > 0) {
    for (int64_t i = 0; i < 2 * of.pick_heads * 1024; ++i) {
      picks.push_back(static_cast<int32_t>(i / 700 % 4));
    }
    facts.picks = Picks{picks, of.pick_heads, 1};
  }
  call.shape = {of.heads, of.kv_heads, 128, 128, {}, 0};
  call.dtype = Dtype::bf16;
  const auto kernel =
      make_mosaic_kernel(request, facts, call, "v6e:1x1", options);
  ASSERT_TRUE(kernel) << kernel.error().message;
  ASSERT_GT(kernel->plan_heads, 1);
  const auto batch = BorrowedBatch::make(request, facts);
  ASSERT_TRUE(batch) << batch.error().message;
  const auto found = region_trips(*batch, *kernel);
  ASSERT_TRUE(found) << found.error().message;
  const auto arrays = make_mosaic_arrays(*batch, *kernel);
  ASSERT_TRUE(arrays) << arrays.error().message;
  expect_told(*found, Walk(*kernel, *arrays).counts());
}

TEST(MosaicTrips, AreThoseOfEveryListOfEveryHead) {
  const std::vector<OfHeads> cases = {
      {{"causal & documents", "window(255, 0)"}, 0, 4, 2},
      {{"causal", "full & documents", "window(255, 0)"}, 0, 12, 2},
      {{"causal", "full", "window(100, 0)", "sink(4) | causal"}, 0, 8, 1},
      {{"causal & blocks(256)"}, 2, 8, 2},
      {{"causal & blocks(256)"}, 8, 8, 2},
      {{"blocks(256)", "causal & documents"}, 4, 20, 4}};
  for (size_t n = 0; n < cases.size(); ++n) {
    for (const bool backward : {false, true}) {
      for (const int64_t page_steps : {0, 8}) {
        for (const int64_t query_chunk : {0, 512, 768}) {
          if (query_chunk > 0 && !backward) continue;
          AttentionCall call;
          call.backward = backward;
          MosaicOptions options = backward ? kMosaicBackward : MosaicOptions{};
          options.page_steps = page_steps;
          options.query_chunk = query_chunk;
          options.numbers = n % 2 == 0 ? Numbers::finite : Numbers::any;
          options.lowering_reason = testing::lowering_reason({256, 128});
          SCOPED_TRACE(::testing::Message()
                       << n << (backward ? " backward " : " forward ")
                       << page_steps << " a page, " << query_chunk);
          expect_walked(cases[n], call, options);
        }
      }
    }
  }
}

// Checks each call of each device, over the arrays that it reads there.
void expect_walked_calls(const Batch& batch, const Shards& shards,
                         const ShardKernel& kernel) {
  const auto arrays =
      make_mosaic_shard_arrays(batch, shards, kernel.planned.kernel);
  ASSERT_TRUE(arrays) << arrays.error().message;
  const size_t devices = shards.shards.size();
  for (size_t s = 0; s < devices; ++s) {
    const auto found = call_trips(batch, shards, s, kernel);
    ASSERT_TRUE(found) << found.error().message;
    ASSERT_EQ(found->size(), kernel.calls.size());
    for (size_t c = 0; c < kernel.calls.size(); ++c) {
      const ShardCall& call = kernel.calls[c];
      const auto part = [&](const char* array) {
        const auto at = std::ranges::find(*arrays, own_name(call.turn, array),
                                          &MosaicArray::name);
        if (at == arrays->end()) return std::vector<int32_t>();
        const size_t each = at->values.size() / devices;
        const auto begin =
            at->values.begin() + static_cast<ptrdiff_t>(s * each);
        return std::vector<int32_t>(begin,
                                    begin + static_cast<ptrdiff_t>(each));
      };
      MosaicArrays own;
      own.steps = part("steps");
      own.range = part("range");
      const std::vector<int32_t> rows = part("rows");
      EXPECT_EQ(rows.empty(), !call.kernel.shape.in_parts);
      SCOPED_TRACE(::testing::Message() << "device " << s << " call " << c);
      Walk walk(call.kernel.kernel, own, rows, call.kernel.shape.late);
      expect_told((*found)[c], walk.counts());
    }
  }
}

struct OfMesh {
  const char *mesh, *mask;
  Balance balance;
  int64_t heads, kv_heads;
  int64_t batch = 1, page_steps = 0, query_chunk = 0;
};

TEST(MosaicTrips, OfCallsAreThoseOfTheirOwnSteps) {
  const OfMesh cases[] = {
      {"seq=4", "causal & documents", Balance::rows, 4, 2},
      {"seq=4", "causal", Balance::tasks, 8, 8},
      {"data=2,seq=2", "causal & window(300, 0)", Balance::headtail, 3, 1, 2},
      {"seq=2", "causal & documents", Balance::contiguous, 4, 4, 1, 24},
      {"seq=2", "causal", Balance::rows, 4, 2, 1, 0, 512},
      {"seq=2", "documents", Balance::contiguous, 2, 1}};
  for (const OfMesh& of : cases) {
    Request request = request_of(of.batch);
    request.q_len = request.kv_len = 2048;
    request.masks = {*parse_mask(of.mask)};
    std::vector<int32_t> ids;
    for (int32_t i = 0; i < 2048 * of.batch; ++i) {
      ids.push_back(i % 2048 < 2000 ? i / 600 : -1);
    }
    Facts facts;
    facts.doc_ids = ids;
    const auto batch = BorrowedBatch::make(request, facts);
    ASSERT_TRUE(batch) << batch.error().message;
    for (const bool backward : {false, true}) {
      if (of.query_chunk > 0 && !backward) continue;
      SCOPED_TRACE(::testing::Message() << of.mesh << " " << of.mask
                                        << (backward ? " backward" : ""));
      AttentionCall call;
      call.shape = {of.heads, of.kv_heads, 128, 128, {}, 0};
      call.dtype = Dtype::bf16;
      call.backward = backward;
      ShardOptions spread;
      spread.balance = of.balance;
      spread.shape = call.shape;
      const auto shards = make_shards(*batch, *parse_mesh(of.mesh), spread);
      ASSERT_TRUE(shards) << shards.error().message;
      MosaicOptions options = backward ? kMosaicBackward : MosaicOptions{};
      options.page_steps = of.page_steps;
      options.query_chunk = of.query_chunk;
      options.lowering_reason = testing::lowering_reason(request.tile);
      const auto kernel =
          plan_shards(*batch, *shards, call, "v6e:2x2", options);
      ASSERT_TRUE(kernel) << kernel.error().message;
      expect_walked_calls(*batch, *shards, *kernel);
    }
  }
}

// A batch that is not the kernel's is refused, as by make_mosaic_arrays.
TEST(MosaicTrips, ABatchThatDoesNotFitIsRefused) {
  Request asked = request_of(1);
  asked.masks = {*parse_mask("causal")};
  for (const int64_t query_chunk : {0, 512}) {
    AttentionCall call;
    call.shape = {4, 2, 128, 128, {}, 0};
    call.dtype = Dtype::bf16;
    call.backward = true;
    MosaicOptions options = kMosaicBackward;
    options.query_chunk = query_chunk;
    options.lowering_reason = testing::lowering_reason(asked.tile);
    const auto kernel = make_mosaic_kernel(asked, {}, call, "v6e", options);
    ASSERT_TRUE(kernel) << kernel.error().message;
    const auto why = [&](auto change) {
      Request request = asked;
      change(request);
      const auto batch = BorrowedBatch::make(request, {});
      if (!batch) return batch.error().message;
      const auto found = region_trips(*batch, *kernel);
      const auto arrays = make_mosaic_arrays(*batch, *kernel);
      if (found || arrays) return std::string();
      EXPECT_EQ(found.error().message, arrays.error().message);
      return found.error().message;
    };
    EXPECT_EQ(why([](Request& r) {
                r.tile = {128, 128};
              }),
              "[mosaic] a plan's tile must be the kernel's 256x128, found "
              "128x128");
    EXPECT_EQ(why([](Request& r) { r.masks.push_back(r.masks.front()); }),
              "[mosaic] heads with masks of their own must be the kernel's 1, "
              "found 2");
    EXPECT_EQ(why([](Request& r) { r.batch = 2; }),
              "[mosaic] batch must fit the kernel's 1, found 2");
    EXPECT_EQ(why([](Request& r) { r.q_len = 2048; }),
              "[mosaic] q_len must fit the kernel's 1024, found 2048");
    EXPECT_EQ(why([](Request& r) { r.kv_len = 2048; }),
              "[mosaic] kv_len must fit the kernel's 1024, found 2048");
  }
}

}  // namespace
}  // namespace tessera::mosaic
