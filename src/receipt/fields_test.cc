// receipt/fields_test.cc: tests that the words a receipt may hold are those of
// the library.
#include "receipt/fields.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "base/dtype_word.h"
#include "run/lane_rules.h"
#include "tessera/machine.h"
#include "tessera/shard.h"
#include "tessera/train.h"

namespace tessera::receipt {
namespace {

using Words = std::vector<std::string>;

Words words(TextList list) { return {list.begin(), list.end()}; }

// The words of an enum that counts from 0 to `last`.
template <class Enum>
Words words_to(Enum last) {
  Words out;
  for (int i = 0; i <= static_cast<int>(last); ++i) {
    out.emplace_back(to_string(static_cast<Enum>(i)));
  }
  return out;
}

Words lanes_where(const std::function<bool(const LaneFacts&)>& holds) {
  Words out;
  for (const LaneFacts& lane : lane_registry()) {
    if (holds(lane)) out.emplace_back(to_string(lane.lane));
  }
  return out;
}

bool is_word(TextList list, std::string_view word) {
  return std::ranges::find(list, word) != list.end();
}

// A row that is about the request, with any verdict.
GateRow row_for(const RequestFeatures& f, const Machine& m) {
  GateRow row;
  row.kernel = "cpu/forward";
  row.machine = m.key();
  row.request_class = f.request_class;
  row.mask = "causal";
  row.q_len = f.q_len;
  row.kv_len = f.kv_len;
  row.shape = f.shape;
  row.density = 0.6;
  row.kernel_ms = 1;
  row.plain_ms = row.factor = 2;
  row.judgement = GateJudgement::passed;
  row.error = 0.5;
  return row;
}

RequestFeatures causal_features() {
  Request request;
  request.masks = {*parse_mask("causal")};
  request.q_len = request.kv_len = 1024;
  return features_of(request, {}, {1, 1, 64, 64, {}, 0}, {});
}

const Machine kMachine = {"A CPU", 2, {Isa::portable}, true, true, {}};

TEST(ReceiptWords, OfLanesAreTheRegistrys) {
  using namespace allowed;
  const Words every = lanes_where([](const LaneFacts&) { return true; });
  EXPECT_EQ(words(kLanes), every);
  Words requested = every;
  requested.insert(requested.begin(), "auto");
  EXPECT_EQ(words(kRequested), requested);
  EXPECT_EQ(words(kRunning), lanes_where([](const LaneFacts& lane) {
              return lane.absent.empty();
            }));
  EXPECT_EQ(words(kFallback), lanes_where([](const LaneFacts& lane) {
              return lane.absent.empty() && lane.same_meaning;
            }));
  // The lanes of which a gate's table may have rows.
  EXPECT_EQ(words(kWithKernels), lanes_where([](const LaneFacts& lane) {
              GateRow row = row_for(causal_features(), kMachine);
              row.lane = lane.lane;
              const auto read = run::parse_gate_rows(gate_json({{row}}));
              return read || read.error().message.find("has kernels") ==
                                 std::string::npos;
            }));
}

TEST(ReceiptWords, OfFamiliesAreThoseThatLanesHave) {
  std::set<std::string> due;
  for (const LaneFacts& lane : lane_registry()) {
    for (const char* platform : {"", "cpu", "tpu", "cuda", "rocm"}) {
      due.insert(lane_family(lane.lane, platform));
    }
  }
  const Words found = words(allowed::kFamilies);
  EXPECT_EQ(std::set<std::string>(found.begin(), found.end()), due);
  EXPECT_EQ(found.size(), due.size());
}

TEST(ReceiptWords, AreThoseOfTheEnums) {
  using namespace allowed;
  EXPECT_EQ(words(kIsas), words_to(Isa::amx));
  EXPECT_EQ(words(kMethods), words_to(XlaMethod::dense));
  EXPECT_EQ(words(kNumbers), words_to(Numbers::any));
  EXPECT_EQ(words(kRowSums), words_to(RowSum::rounded));
  EXPECT_EQ(words(kBalances), words_to(Balance::tasks));
  // A receipt has the exchange that was chosen, so never `auto`.
  EXPECT_EQ(words(kExchanges), words_to(TileExchange::gather));
  Words training = words_to(TileExchange::ragged);
  training.insert(training.begin(), "gather");
  EXPECT_EQ(words(kTrainExchanges), training);
  EXPECT_EQ(words(kClasses), words_to(RequestClass::other));
  EXPECT_EQ(words(kJudgements), words_to(GateJudgement::unjudged));
  EXPECT_EQ(words(kBases), words_to(GateBasis::predicted));
  EXPECT_EQ(words(kRules), words_to(RouteRule::query_tile));
  EXPECT_EQ(words(kUnions), words_to(UnionMethod::sort));
  EXPECT_EQ(words(kMeanings), words_to(RouteMeaning::tile_union));
  Words parts = words_to(Slot::layernorm_mlp);
  EXPECT_EQ(words(allowed::kSlots), parts);
  parts.emplace_back("activation");
  EXPECT_EQ(words(kParts), parts);
  for (int i = 0; i <= static_cast<int>(Dtype::boolean); ++i) {
    const std::string word = dtype_word(static_cast<Dtype>(i));
    EXPECT_EQ(is_word(kDtypes, word), attention_dtype(word).has_value())
        << word;
  }
}

// A receipt has only rows that decided or kept a lane out, so no other verdict.
TEST(ReceiptWords, OfVerdictsAreThoseThatDecideOrBar) {
  const RequestFeatures f = causal_features();
  GateRow row = row_for(f, kMachine);
  for (int i = 0; i <= static_cast<int>(GateVerdict::unmeasured); ++i) {
    row.verdict = static_cast<GateVerdict>(i);
    EXPECT_EQ(
        applies(row, f, {10, 6}, kMachine) || bars(row, row.lane, f, kMachine),
        is_word(allowed::kVerdicts, to_string(row.verdict)))
        << to_string(row.verdict);
  }
}

}  // namespace
}  // namespace tessera::receipt
