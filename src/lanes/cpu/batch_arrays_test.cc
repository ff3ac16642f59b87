// lanes/cpu/batch_arrays_test.cc: which batches may leave out lists, and what
// is kept from call to call.
#include "lanes/cpu/batch_arrays.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "tessera/batch.h"
#include "tessera/mask.h"

namespace tessera::cpu {
namespace {

constexpr int64_t kTokens = 64;

struct Call {
  Request request;
  std::vector<int32_t> ids, picks;
  std::string text;
  std::vector<NamedInts> arrays;

  Facts facts() const {
    Facts out;
    out.doc_ids = ids;
    if (!picks.empty()) out.picks = Picks{picks, 1, 1};
    return out;
  }
  Result<std::shared_ptr<const CpuWork>> ready() const {
    std::map<std::string, std::span<const int32_t>> by_name;
    for (const NamedInts& a : arrays) by_name[a.name] = a.values;
    const auto words = [&](const std::string& name) {
      const std::span<const int32_t> of = by_name.at(name);
      return std::span(reinterpret_cast<const uint32_t*>(of.data()), of.size());
    };
    BatchArrays given;
    given.text = text;
    given.q_len = given.kv_len = kTokens;
    given.forward = {by_name.at("forward.row_start"), words("forward.entries")};
    given.transposed = {by_name.at("transposed.row_start"),
                        words("transposed.entries")};
    for (const std::string& name : fact_names(facts())) {
      std::vector<int64_t> shape = {1, kTokens};
      if (name == "picks") shape = {1, 1, kTokens, 1};
      given.facts.push_back({by_name.at(name), shape});
    }
    return ready_work(given);
  }
};

// Each query picks its own block of `block` keys.
Call call_of(const std::string& mask, bool picks, bool lists,
             int32_t block = 16) {
  Call out;
  out.request.masks = {*parse_mask(mask)};
  out.request.q_len = out.request.kv_len = kTokens;
  out.request.tile = {16, 16};
  out.ids.assign(kTokens, 0);
  for (int32_t q = 0; picks && q < kTokens; ++q) out.picks.push_back(q / block);
  auto batch = OwnedBatch::copy(out.request, out.facts());
  EXPECT_TRUE(batch) << batch.error().message;
  out.text = static_text(out.request, out.facts());
  out.arrays =
      *batch_arrays(*batch, lists ? std::optional<int64_t>(64) : std::nullopt);
  return out;
}

TEST(CpuBatchArrays, ListsOfPicksMayBeLeftOut) {
  const std::string mask = "causal & documents & routed(1, 16)";
  const auto with = call_of(mask, true, true).ready();
  const auto without = call_of(mask, true, false).ready();
  ASSERT_TRUE(with) << with.error().message;
  ASSERT_TRUE(without) << without.error().message;
}

TEST(CpuBatchArrays, NoOtherListsMay) {
  auto none = call_of("causal & documents", false, false).ready();
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().message,
            "[cpu] worklists must be those that the batch's facts plan to, "
            "found another forward one");
  Call half = call_of("causal & documents & routed(1, 16)", true, true);
  for (NamedInts& a : half.arrays) {
    if (a.name.starts_with("forward.")) a.values.clear();
  }
  none = half.ready();
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().message,
            "[cpu] worklists must be those that the batch's facts plan to, "
            "found another forward one");
}

// The backward pass of a step visits its layers from the last to the first.
TEST(CpuBatchArrays, ManyBatchesAreMadeReadyOnce) {
  std::vector<Call> layers;
  for (int32_t i = 0; i < 40; ++i) {
    layers.push_back(
        call_of("causal & documents & routed(1, 16)", true, false));
    layers.back().picks[kTokens - 1] = i % 4;
    layers.back().picks[kTokens - 2] = i / 4 % 4;
    layers.back().picks[kTokens - 3] = i / 16;
    auto batch = OwnedBatch::copy(layers.back().request, layers.back().facts());
    ASSERT_TRUE(batch) << batch.error().message;
    layers.back().arrays = *batch_arrays(*batch, {});
  }
  std::vector<std::shared_ptr<const CpuWork>> there;
  for (const Call& layer : layers) there.push_back(*layer.ready());
  for (size_t i = layers.size(); i-- > 0;) {
    EXPECT_EQ(*layers[i].ready(), there[i]) << i;
  }
}

}  // namespace
}  // namespace tessera::cpu
