// request/spec_test.cc: tests spec files, and each way to get one wrong.
#include "request/spec.h"

#include <gtest/gtest.h>

#include "request/unsupported.h"

namespace tessera::request {
namespace {

std::string message(std::string_view text) {
  const auto r = parse_spec(text);
  return r.ok() ? "no error" : r.error().message;
}

TEST(Spec, FillsEveryField) {
  const auto r = parse_spec(R"({
    "mask": "causal & documents", "q_len": 32768, "kv_len": 65536, "batch": 2,
    "q_offset": "0,128", "tile": "256x128", "logical_block": "64x64",
    "docs": "lognormal:mean=2048,seed=0", "q_docs": "q.npy",
    "valid": "tokens:1,2", "prefix": "16", "picks": "p.safetensors",
    "target": "v6e", "max_steps": 4096, "max_width": 64,
    "max_union": 12})");
  ASSERT_TRUE(r.ok()) << r.error().message;
  receipt::RequestText want;
  want.masks = {"causal & documents"};
  want.q_len = "32768";
  want.kv_len = "65536";
  want.batch = "2";
  want.q_offset = "0,128";
  want.tile = "256x128";
  want.logical_block = "64x64";
  want.docs = "lognormal:mean=2048,seed=0";
  want.q_docs = "q.npy";
  want.valid = {"tokens:1,2"};
  want.prefix = "16";
  want.picks = "p.safetensors";
  want.target = "v6e";
  want.max_steps = "4096";
  want.max_width = "64";
  want.max_union = "12";
  EXPECT_EQ(*r, want);
}

TEST(Spec, NaturalFormsBecomeTheFlagsSyntax) {
  const auto r = parse_spec(R"({
    "mask": ["causal", "full"], "q_offset": [-5, 6], "tile": [256, 128],
    "logical_block": [64, 32], "valid": [10, 20], "prefix": 7})");
  ASSERT_TRUE(r.ok()) << r.error().message;
  EXPECT_EQ(r->masks, (std::vector<std::string>{"causal", "full"}));
  EXPECT_EQ(r->q_offset, "-5,6");
  EXPECT_EQ(r->tile, "256x128");
  EXPECT_EQ(r->logical_block, "64x32");
  EXPECT_EQ(r->valid, (std::vector<std::string>{"10,20"}));
  EXPECT_EQ(r->prefix, "7");
  EXPECT_EQ(parse_spec(R"({"valid": ["tokens:1", "slots:2@16"]})")->valid,
            (std::vector<std::string>{"tokens:1", "slots:2@16"}));
  EXPECT_EQ(*parse_spec("{}"), receipt::RequestText());
}

TEST(Spec, Refuses) {
  const std::string numbers =
      " must be an integer, a string or an array of integers, found ";
  const std::string pair =
      " must be a string such as \"256x256\" or an array of 2 integers, found ";
  const std::pair<std::string, std::string> cases[] = {
      {"",
       "text must be valid JSON, found the end of the text for line 1, "
       "column 1"},
      {"[]", "a spec must be an object, found an array of 0 for it"},
      {"null", "a spec must be an object, found null for it"},
      {"{\"q_len\": 1,\n \"q_len\": 2}",
       "a key must appear once, found it twice for 'q_len'"},
      {R"({"q_len": NaN})",
       "text must be valid JSON, found 'N' for line 1, column 11"},
      {R"({"q_len": 1.5})",
       "q_len must be an integer, found the float 1.5 for "
       "it"},
      {R"({"q_len": 1024.0})",
       "q_len must be an integer, found the float 1024.0 for it"},
      {R"({"q_len": "1"})",
       "q_len must be an integer, found the string '1' for it"},
      {R"({"q_len": true})", "q_len must be an integer, found true for it"},
      {R"({"q_len": [1]})",
       "q_len must be an integer, found an array of 1 for it"},
      {R"({"batch": null})", "batch must be an integer, found null for it"},
      {R"({"kv_len": 9223372036854775808})",
       "kv_len must be an integer, found the integer 9223372036854775808 for "
       "it"},
      {R"({"max_steps": 1e300})",
       "max_steps must be an integer, found the float 1e+300 for it"},
      {R"({"mask": 1})",
       "mask must be a string or an array of strings, found "
       "the integer 1 for it"},
      {R"({"mask": []})",
       "mask must be a string or an array of strings, found "
       "an array of 0 for it"},
      {R"({"mask": ["causal", 2]})",
       "mask must be a string or an array of strings, found the integer 2 at "
       "[1] for it"},
      {R"({"mask": {"and": []}})",
       "mask must be a string or an array of strings, found an object for it"},
      {R"({"tile": 256})", "tile" + pair + "the integer 256 for it"},
      {R"({"tile": [256]})", "tile" + pair + "an array of 1 for it"},
      {R"({"tile": [256, 256, 1]})", "tile" + pair + "an array of 3 for it"},
      {R"({"logical_block": [64, 6.4]})",
       "logical_block" + pair + "the float 6.4 at [1] for it"},
      {R"({"q_offset": 0.5})", "q_offset" + numbers + "the float 0.5 for it"},
      {R"({"q_offset": [0, "1"]})",
       "q_offset" + numbers + "the string '1' at [1] for it"},
      {R"({"prefix": [[1]]})",
       "prefix" + numbers + "an array of 1 at [0] for it"},
      {R"({"valid": ["1", 2]})",
       "valid must be a string, an array of strings, an integer or an array of "
       "integers, found the integer 2 at [1] for it"},
      {R"({"docs": [1, 2]})",
       "docs must be a string, found an array of 2 for it"},
      {R"({"picks": 3})", "picks must be a string, found the integer 3 for it"},
      {R"({"qlen": 1})",
       "fields must be known ones, found 'qlen' (did you mean 'q_len'?)"},
      {R"({"masks": "causal"})",
       "fields must be known ones, found 'masks' (did you mean 'mask'?)"},
      {R"({"max_with": 1})",
       "fields must be known ones, found 'max_with' (did you mean "
       "'max_width'?)"},
      {R"({"temperature": 1})",
       "fields must be known ones, found 'temperature'"},
      {"{\"\\u0000\": 1}", "fields must be known ones, found '\\x00'"},
      {R"({"dropout": 0.1})",
       "dropout is not here: attention is exact, and a plan has no random "
       "part, found the field 'dropout'"},
      {R"({"attn_bias": []})",
       "additive bias is not here: scores have a softcap and a mask, nothing "
       "is added to them, found the field 'attn_bias'"},
      {R"({"Block-Table": []})",
       "paged KV is not here: keys and values are dense arrays, and a plan "
       "addresses them by position, found the field 'Block-Table'"},
  };
  for (const auto& [text, want] : cases) {
    EXPECT_EQ(message(text), "[spec] " + want) << text;
  }
}

TEST(Spec, TheSizeHasALimit) {
  EXPECT_EQ(message(std::string(kMaxSpecBytes + 1, ' ')),
            "[spec] a spec must be at most 16777216 bytes, found 16777217");
}

TEST(Spec, FilesLoad) {
  EXPECT_EQ(load_spec("/nonexistent/spec.json").error().message,
            "[file] input must exist, found no file for "
            "'/nonexistent/spec.json'");
}

TEST(Refused, WhatPeopleAskForIsRefusedByName) {
  for (const char* name :
       {"dropout", "dropout_p", "attn_bias", "bias", "alibi", "page_table",
        "block_table", "paged_kv", "kv_cache", "score_mod", "attn_mask"}) {
    EXPECT_TRUE(refusal(name)) << name;
    EXPECT_EQ(message("{\"" + std::string(name) + "\": 1}"),
              "[spec] " + std::string(*refusal(name)) + ", found the field '" +
                  name + "'");
  }
  EXPECT_TRUE(refusal("paged-kv"));
  EXPECT_TRUE(refusal("DROPOUT_P"));
  EXPECT_FALSE(refusal("mask"));
  EXPECT_FALSE(refusal(""));
  // No name is both a field and refused.
  for (const Refused& r : refused_names()) {
    EXPECT_EQ(refusal(r.name), r.reason);
  }
}

}  // namespace
}  // namespace tessera::request
