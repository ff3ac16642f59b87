// The loader: rows and plans made ahead; it may be stopped and resumed
// anywhere.
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <thread>

#include "base/fail.h"
#include "tessera/batch.h"
#include "tessera/documents.h"
#include "tests/loaded_batches.h"

namespace tessera::data {
namespace {

using enum RowColumn;
using testing::all_of;

// Documents of random lengths; an error at document fails_at.
class Drawn : public DocumentSource {
 public:
  explicit Drawn(int64_t documents, int64_t fails_at = -1)
      : documents_(documents), fails_at_(fails_at) {}

  Result<bool> read(Documents& into) override {
    if (at_ == fails_at_) return io_error("test", "a disk must turn");
    if (at_ == documents_) return false;
    std::mt19937_64 random(static_cast<uint64_t>(at_));
    for (uint64_t n = random() % 70; n > 0; --n) {
      into.input_ids.push_back(static_cast<int32_t>(random() % 1000));
    }
    into.close_document();
    ++at_;
    return true;
  }
  SourcePosition position() const override { return {0, at_, 0}; }
  Result<void> seek(const SourcePosition& position) override {
    at_ = position.offset;
    return {};
  }

 private:
  int64_t documents_, fails_at_, at_ = 0;
};

LoaderOptions options_of(uint64_t seed) {
  LoaderOptions o;
  o.stream.pack.tokens = 64;
  o.stream.pack.tile = o.tile = {16, 16};
  o.stream.pack.window_rows = 2 + static_cast<int64_t>(seed % 5);
  o.stream.pack.strategy = static_cast<PackStrategy>(seed % 4);
  o.stream.pad_id = 3;
  o.rows = 1 + static_cast<int64_t>(seed % 3);
  o.ahead = 1 + static_cast<int64_t>(seed % 4);
  o.workers = 1 + static_cast<int64_t>(seed / 2 % 4);
  return o;
}

Loader open(const LoaderOptions& options, const StreamPosition& from = {},
            int64_t fails_at = -1) {
  auto loader =
      Loader::open(std::make_unique<Drawn>(90, fails_at), options, from);
  EXPECT_TRUE(loader) << loader.error().message;
  return std::move(*loader);
}

TEST(Loaders, BatchesAreTheStreamsRowsWithTheirPlans) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    const LoaderOptions options = options_of(seed);
    auto stream = RowStream::open(std::make_unique<Drawn>(90), options.stream);
    Loader loader = open(options);
    const std::vector<LoadedBatch> all = all_of(loader);
    ASSERT_GT(all.size(), 10u);
    for (size_t b = 0; b < all.size(); ++b) {
      const LoadedBatch& got = all[b];
      Rows expected = *stream->next(options.rows);
      EXPECT_EQ(got.filled, expected.rows);
      EXPECT_EQ(got.after, stream->position());
      EXPECT_EQ(got.rows.rows, options.rows);
      EXPECT_TRUE(check_rows(got.rows, "a batch"));
      for (size_t c = 0; c < kRowColumns; ++c) {
        const auto n = expected.columns[c].size();
        std::vector<int32_t> some(
            got.rows.columns[c].begin(),
            got.rows.columns[c].begin() + static_cast<std::ptrdiff_t>(n));
        EXPECT_EQ(some, expected.columns[c]);
      }
      if (b + 1 < all.size()) {
        EXPECT_EQ(got.filled, options.rows);
      }
      // The plan equals that of a batch made alone from the same facts.
      const auto alone =
          OwnedBatch::copy(got.batch.request(), got.rows.facts());
      ASSERT_TRUE(alone);
      EXPECT_EQ(plan_digest(got.batch.plan()), plan_digest(alone->plan()));
      EXPECT_EQ(got.batch.request().masks,
                std::vector<Mask>{*parse_mask("causal & documents")});
    }
    EXPECT_EQ(stream->next(1)->rows, 0);
    EXPECT_EQ(loader.report(), stream->report());
    EXPECT_TRUE(loader.report().account.sums(options.stream.pack.tokens));
    EXPECT_EQ(loader.position(), stream->position());
    EXPECT_TRUE(loader.ready(0));
    EXPECT_FALSE(*loader.next());
  }
}

// Reused memory has no effect, whatever it holds.
TEST(Loaders, SpareRowsLeaveNothingBehind) {
  for (uint64_t seed = 0; seed < 12; ++seed) {
    const LoaderOptions options = options_of(seed);
    Loader fresh = open(options), again = open(options);
    const std::shared_ptr<SpareRows> spare = again.spare();
    std::set<const int32_t*> places;
    int batches = 0;
    for (const LoadedBatch& expected : all_of(fresh)) {
      auto got = again.next();
      ASSERT_TRUE(got && *got);
      EXPECT_EQ((*got)->rows, expected.rows);
      Rows used = std::move((*got)->rows);
      places.insert(used.columns[0].data());
      ++batches;
      for (std::vector<int32_t>& column : used.columns) {
        column.assign(column.size() + seed, 77);
      }
      std::thread([&] { spare->give(std::move(used)); }).join();
    }
    EXPECT_FALSE(*again.next());
    EXPECT_LT(places.size(), static_cast<size_t>(batches));
  }
}

TEST(Loaders, SpareRowsOutliveTheLoaderAndHaveAnEnd) {
  std::shared_ptr<SpareRows> spare;
  {
    Loader loader = open(options_of(0));
    spare = loader.spare();
  }
  for (int i = 0; i < 100; ++i) spare->give(*Rows::make({8, 4, 4}, 1));
  int kept = 0;
  while (!spare->take().columns[0].empty()) ++kept;
  EXPECT_EQ(kept, options_of(0).ahead + 1);
}

// The smallest ceiling that all batches fit.
int64_t enough_steps(LoaderOptions options) {
  for (int64_t steps = 1;; ++steps) {
    options.ceilings.max_steps = steps;
    Loader loader = open(options);
    auto next = loader.next();
    while (next && *next) next = loader.next();
    if (next) return steps;
  }
}

// The batches of a loader, and the error that ended it.
std::pair<std::vector<LoadedBatch>, std::string> run(
    const LoaderOptions& options) {
  Loader loader = open(options);
  std::vector<LoadedBatch> all;
  auto next = loader.next();
  for (; next && *next; next = loader.next()) all.push_back(std::move(**next));
  return {std::move(all), next ? "" : next.error().message};
}

TEST(Loaders, AnyNumberOfWorkersGivesTheSame) {
  size_t before_errors = 0;
  for (uint64_t seed = 0; seed < 16; ++seed) {
    LoaderOptions options = options_of(seed / 2);
    const bool fails = seed % 2 == 1;  // at the batch with the most steps
    options.ceilings.max_steps = enough_steps(options) - (fails ? 1 : 0);
    options.ahead = 6;
    options.workers = 1;
    const auto [want, why] = run(options);
    EXPECT_EQ(why.empty(), !fails);
    if (fails) before_errors += want.size();
    for (const int64_t workers : {2, 4, 8}) {
      options.workers = workers;
      const auto [got, also_why] = run(options);
      EXPECT_EQ(also_why, why);
      ASSERT_EQ(got.size(), want.size());
      for (size_t b = 0; b < got.size(); ++b) {
        EXPECT_EQ(got[b].rows, want[b].rows);
        EXPECT_EQ(got[b].after, want[b].after);
        EXPECT_EQ(got[b].report, want[b].report);
        EXPECT_EQ(plan_digest(got[b].batch.plan()),
                  plan_digest(want[b].batch.plan()));
      }
    }
  }
  EXPECT_GT(before_errors, 20u);
}

TEST(Loaders, OneContractServesEveryBatch) {
  LoaderOptions options = options_of(3);
  options.ceilings.max_steps = 64;
  options.ceilings.max_width = 4;
  Loader loader = open(options);
  std::set<std::string> keys;
  for (const LoadedBatch& b : all_of(loader)) {
    keys.insert(make_contract(b.batch)->key);
  }
  EXPECT_EQ(keys.size(), 1u);
  options.ceilings.max_steps = 1;
  Loader small = open(options);
  const auto next = small.next();
  ASSERT_FALSE(next);
  EXPECT_EQ(next.error().kind, ErrorKind::limit);
}

TEST(Loaders, ResumedAnywhereTheyGiveTheSameBatches) {
  const LoaderOptions options = options_of(7);
  Loader whole = open(options);
  const std::vector<LoadedBatch> all = all_of(whole);
  for (size_t at = 0; at < all.size(); ++at) {
    Loader again = open(options, all[at].after);
    EXPECT_EQ(again.position(), all[at].after);
    for (size_t b = at + 1; b < all.size(); ++b) {
      auto next = again.next();
      ASSERT_TRUE(next && *next);
      ASSERT_EQ((*next)->rows, all[b].rows) << at << " " << b;
      ASSERT_EQ((*next)->after, all[b].after);
      ASSERT_EQ((*next)->report, all[b].report);
    }
    EXPECT_FALSE(*again.next());
    EXPECT_EQ(again.report(), whole.report());
  }
}

TEST(Loaders, ErrorsComeAfterTheBatchesBeforeThem) {
  const LoaderOptions options = options_of(2);
  Loader whole = open(options);
  const std::vector<LoadedBatch> all = all_of(whole);
  Loader broken = open(options, {}, 60);
  size_t batches = 0;
  Result<std::optional<LoadedBatch>> next = broken.next();
  for (; next && *next; next = broken.next(), ++batches) {
    EXPECT_EQ((*next)->rows, all[batches].rows);
  }
  EXPECT_GT(batches, 2u);
  for (int again = 0; again < 3; ++again) {
    ASSERT_FALSE(next);
    EXPECT_EQ(next.error().message, "[test] a disk must turn");
    next = broken.next();
  }
}

TEST(Loaders, StoppedAnywhereTheyEndCleanly) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Loader loader = open(options_of(seed));
    std::optional<LoadedBatch> kept;
    for (uint64_t n = seed % 7; n > 0; --n) kept = std::move(**loader.next());
    if (seed % 3 == 0) std::this_thread::yield();
    Loader moved = std::move(loader);
    if (seed % 2 == 0) moved = open(options_of(seed + 1));
    if (kept) {
      EXPECT_GT(kept->batch.plan().forward.entries.size(), 0u);
    }
  }
}

TEST(Loaders, ABatchThatIsHeldStaysWhatItWas) {
  Loader loader = open(options_of(6));
  std::vector<LoadedBatch> held;
  std::vector<std::string> digests;
  for (int b = 0; b < 12; ++b) {
    auto next = loader.next();
    if (!next || !*next) break;
    // Every other batch is dropped, so that its memory is reused.
    if (b % 2 == 1) continue;
    digests.push_back(plan_digest((*next)->batch.plan()));
    held.push_back(std::move(**next));
  }
  for (size_t b = 0; b < held.size(); ++b) {
    EXPECT_EQ(plan_digest(held[b].batch.plan()), digests[b]);
  }
}

TEST(LoaderErrors, AreToldBeforeAnyWork) {
  const auto said = [](const LoaderOptions& options) {
    auto loader = Loader::open(std::make_unique<Drawn>(9), options);
    return loader ? "" : loader.error().message;
  };
  LoaderOptions options = options_of(0);
  options.rows = 0;
  EXPECT_EQ(said(options),
            "[data] a batch must have 1 to 1048576 rows, found 0 for it");
  options = options_of(0);
  options.ahead = 65;
  EXPECT_EQ(said(options),
            "[data] batches made ahead must be 1 to 64, found 65 for them");
  options = options_of(0);
  options.workers = 0;
  EXPECT_EQ(said(options),
            "[data] a loader's workers must be 1 to 64, found 0 of them");
  options = options_of(0);
  options.masks = {*parse_mask("prefix & documents")};
  EXPECT_EQ(said(options),
            "[facts] prefix needs prefix_lengths, found none for the mask");
  options = options_of(0);
  options.tile = {7, 7};
  EXPECT_NE(said(options), "");
}

}  // namespace
}  // namespace tessera::data
