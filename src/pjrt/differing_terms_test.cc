// pjrt/differing_terms_test.cc: the text about the fields in which contracts
// differ.
#include "pjrt/differing_terms.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "tessera/batch.h"

namespace tessera::pjrt {
namespace {

using Texts = std::vector<std::string>;

TEST(DifferingTerms, NamesTheFieldsThatDifferWithTheirValues) {
  EXPECT_EQ(
      differing_terms(Texts{R"({"q_len":4096,"kv_len":8192,"dtype":"f32"})",
                            R"({"q_len":6144,"kv_len":8192,"dtype":"f32"})",
                            R"({"q_len":4096,"kv_len":8192,"dtype":"bf16"})",
                            R"({"q_len":8192,"kv_len":8192,"dtype":"f32"})"}),
      R"(dtype "f32", "bf16"; q_len 4096, 6144, 8192)");
}

TEST(DifferingTerms, AbsentFieldsAreNone) {
  EXPECT_EQ(differing_terms(Texts{R"({"a":1})", R"({"a":1,"b":[1,2]})"}),
            "b none, [1,2]");
}

TEST(DifferingTerms, LooksIntoObjectsListsAndTexts) {
  const nlohmann::json plan = {{"q_len", 4}, {"facts", {"doc_ids"}}};
  nlohmann::json other = plan;
  other["q_len"] = 8;
  const auto text = [](const nlohmann::json& inner) {
    return nlohmann::json{{"plan", inner.dump()}, {"masks", {{{"mask", "m"}}}}}
        .dump();
  };
  EXPECT_EQ(differing_terms(Texts{text(plan), text(other)}), "q_len 4, 8");
  EXPECT_EQ(differing_terms(Texts{R"({"masks":[{"mask":"full"}]})",
                                  R"({"masks":[{"mask":"causal"}]})"}),
            R"(mask "full", "causal")");
  // Two fields with the same name are shown by their paths.
  EXPECT_EQ(differing_terms(Texts{R"({"a":{"n":1},"b":{"n":1}})",
                                  R"({"a":{"n":2},"b":{"n":3}})"}),
            "a.n 1, 2; b.n 1, 3");
}

TEST(DifferingTerms, KeysAreNamedOnlyWhereNothingElseDiffers) {
  const std::string a(32, 'a'), b(32, 'b');
  const auto text = [](const std::string& key, int n) {
    return nlohmann::json{{"plan", key}, {"n", n}}.dump();
  };
  EXPECT_EQ(differing_terms(Texts{text(a, 1), text(b, 2)}), "n 1, 2");
  EXPECT_EQ(differing_terms(Texts{text(a, 1), text(b, 1)}),
            "plan \"" + a + "\", \"" + b + "\"");
  EXPECT_EQ(differing_terms(Texts{text(a, 1), text(a, 1)}),
            "nothing in their texts");
}

TEST(DifferingTerms, ManyValuesAndFieldsAreCutShortAndTheNewestStays) {
  Texts many;
  for (int i = 1; i <= 20; ++i) {
    many.push_back("{\"n\":" + std::to_string(i) + "}");
  }
  EXPECT_EQ(differing_terms(many), "n 1, 2, 3, 4, 5, 6, 7, 12 more, 20");
  many.resize(8);
  EXPECT_EQ(differing_terms(many), "n 1, 2, 3, 4, 5, 6, 7, 8");
  nlohmann::json wide, wider;
  for (char c = 'a'; c < 'k'; ++c) {
    wide[std::string(1, c)] = 1;
    wider[std::string(1, c)] = 2;
  }
  const std::string text = differing_terms(Texts{wide.dump(), wider.dump()});
  EXPECT_TRUE(text.starts_with("a 1, 2; b 1, 2;")) << text;
  EXPECT_TRUE(text.ends_with("h 1, 2; 2 more")) << text;
}

TEST(DifferingTerms, TextsThatAreNoJsonAreShownThemselves) {
  EXPECT_EQ(differing_terms(Texts{"one \n\xff", "two"}),
            "text \"one \\n\\ufffd\", \"two\"");
  const std::string text =
      differing_terms(Texts{std::string(5000, 'x'), std::string(5000, 'y')});
  EXPECT_LT(text.size(), 200u);
  EXPECT_EQ(differing_terms(Texts{}), "nothing in their texts");
}

TEST(DifferingTerms, ReadsRealContracts) {
  Request request;
  request.masks = {*parse_mask("causal")};
  Texts texts;
  for (const int64_t length : {4000, 6000, 12000}) {
    request.q_len = request.kv_len = length;
    const auto plan = make_ceiling_contract(request, {});
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    KernelChoice choice;
    choice.lane = "xla";
    texts.push_back(make_kernel_contract(*plan, choice).text);
  }
  const std::string text = differing_terms(texts);
  EXPECT_NE(text.find("kv_len 4096, 6144, 12288; q_len 4096, 6144, 12288"),
            std::string::npos)
      << text;
}

}  // namespace
}  // namespace tessera::pjrt
