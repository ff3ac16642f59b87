// lanes/jax_bridge/spec_test.cc: the file of shapes, intact and broken.
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "base/files.h"
#include "tessera/bridge.h"

namespace tessera::bridge {
namespace {

using nlohmann::json;

// Made by tests/golden/make_bridge.py.
std::string golden() {
  auto text = read_file("tests/golden/bridge/small.json", 1 << 20);
  return text ? *text : std::string();
}

TEST(BridgeSpec, IsWhatJaxExported) {
  const auto spec = parse_bridge_spec(golden());
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  EXPECT_EQ(spec->name, "small");
  EXPECT_EQ(spec->operation, "attention");
  EXPECT_EQ(spec->platforms, std::vector<std::string>({"tpu", "cpu"}));
  EXPECT_TRUE(spec->platform_index);
  EXPECT_EQ(spec->kept_inputs, std::vector<int64_t>({0, 1, 2, 4}));
  ASSERT_EQ(spec->inputs.size(), 5u);
  EXPECT_EQ(spec->inputs[1].name, "k");
  EXPECT_EQ(spec->inputs[1].shape, std::vector<int64_t>({1, 1, 16, 8}));
  EXPECT_EQ(spec->inputs[3].dtype, Dtype::boolean);
  EXPECT_EQ(spec->inputs[4].range, std::pair(int64_t{0}, int64_t{1}));
  ASSERT_EQ(spec->outputs.size(), 2u);
  ASSERT_TRUE(spec->attention.has_value());
  EXPECT_EQ(spec->attention->mask, "causal & window(5, 0) & documents");
  EXPECT_EQ(spec->attention->softcap, 2);
  EXPECT_FALSE(spec->attention->scale.has_value());
  EXPECT_EQ(find_role(*spec, "doc_ids"), &spec->inputs[4]);
  EXPECT_EQ(find_role(*spec, "lse"), &spec->outputs[1]);
  EXPECT_EQ(find_role(*spec, "sink_logits"), nullptr);
}

TEST(BridgeSpec, HasRolesOfTreesNamesAndPicks) {
  const auto spec =
      parse_bridge_spec(*read_file("tests/golden/bridge/roles.json", 1 << 20));
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  EXPECT_EQ(find_role(*spec, "tree_enter"), &spec->inputs[3]);
  EXPECT_EQ(find_role(*spec, "tree_leave"), &spec->inputs[4]);
  EXPECT_EQ(find_role(*spec, "same_b"), &spec->inputs[5]);
  EXPECT_EQ(find_role(*spec, "same_a"), nullptr);
  EXPECT_EQ(find_role(*spec, "q_same_b"), &spec->inputs[6]);
  EXPECT_EQ(find_role(*spec, "picks"), &spec->inputs[7]);
}

struct Case {
  std::string name;
  std::function<void(json&)> change;
  std::string error;
};

json& roles(json& j) { return j["attention"]["roles"]; }

const std::vector<Case>& cases_of_the_file() {
  static const auto& all = *new std::vector<Case>{
      {"no field", [](json& j) { j.erase("jax"); },
       "the file of shapes must have the field 'jax', found none for it"},
      {"one more field", [](json& j) { j["more"] = 1; },
       "the file of shapes must have no other field, found 'more' for one"},
      {"format", [](json& j) { j["format"] = "other"; },
       "format must be 'tessera bridge', found 'other'"},
      {"version", [](json& j) { j["version"] = 2; },
       "version must be an integer of 1 to 1, found the integer 2 for it"},
      {"convention", [](json& j) { j["calling_convention_version"] = 11; },
       "calling_convention_version must be an integer of 9 to 10, found the "
       "integer 11 for it"},
      {"empty name", [](json& j) { j["name"] = ""; },
       "name must have 1 to 256 bytes, found 0"},
      {"a name of a number", [](json& j) { j["name"] = 3; },
       "name must be a string, found the integer 3 for it"},
      {"no bytes", [](json& j) { j["artifact"]["bytes"] = 0; },
       "artifact.bytes must be an integer of 1 to 9223372036854775807, found "
       "the integer 0 for it"},
      {"crc", [](json& j) { j["artifact"]["crc32"] = -1; },
       "artifact.crc32 must be an integer of 0 to 4294967295, found the "
       "integer -1 for it"},
      {"platforms", [](json& j) { j["platforms"] = "cpu"; },
       "platforms must be an array of at most 16, found the string 'cpu' for "
       "it"},
      {"a platform", [](json& j) { j["platforms"][0] = nullptr; },
       "each of platforms must be a string, found null for it"},
      {"index", [](json& j) { j["platform_index"] = 1; },
       "platform_index must be true or false, found the integer 1 for it"},
      {"inputs", [](json& j) { j["inputs"] = json::object(); },
       "inputs must be an array of at most 4096, found an object for it"},
      {"an input", [](json& j) { j["inputs"][0] = 5; },
       "inputs[0] must be an object, found the integer 5 for it"},
      {"dtype", [](json& j) { j["inputs"][0]["dtype"] = "U32"; },
       "inputs[0].dtype must be BOOL, I8, I16, I32, I64, U8, F16, BF16, F32 or "
       "F64, found 'U32'"},
      {"negative size", [](json& j) { j["inputs"][0]["shape"][1] = -2; },
       "each size of inputs[0].shape must be an integer of 0 to "
       "9223372036854775807, found the integer -2 for it"},
      {"float size", [](json& j) { j["outputs"][0]["shape"][1] = 2.5; },
       "each size of outputs[0].shape must be an integer of 0 to "
       "9223372036854775807, found the float 2.5 for it"},
      {"huge",
       [](json& j) {
         j["inputs"][0]["shape"] = {1L << 32, 1L << 31};
       },
       "inputs[0] must have at most 2^63-1 bytes, found [4294967296, "
       "2147483648]"},
      {"one name twice", [](json& j) { j["outputs"][0]["name"] = "q"; },
       "inputs and outputs must have names of their own, found 'q' twice"},
      {"range of floats",
       [](json& j) {
         j["inputs"][0]["range"] = {0, 1};
       },
       "a range must be of integers, found F32 for inputs[0].range"},
      {"range of an output",
       [](json& j) {
         j["outputs"].push_back({{"name", "n"},
                                 {"dtype", "I8"},
                                 {"shape", json::array()},
                                 {"range", {0, 1}}});
       },
       "a range must be of an input, found one for 'n'"},
      {"range backwards",
       [](json& j) {
         j["inputs"][4]["range"] = {3, 1};
       },
       "the last of inputs[4].range must be an integer of 3 to 2147483647, "
       "found the integer 1 for it"},
      {"range of one", [](json& j) { j["inputs"][4]["range"] = {3}; },
       "inputs[4].range must be an array of 2, found an array of 1 for it"},
      {"kept twice",
       [](json& j) {
         j["kept_inputs"] = {0, 0};
       },
       "each of kept_inputs, which rise, must be an integer of 1 to 4, found "
       "the integer 0 for it"},
      {"kept beyond", [](json& j) { j["kept_inputs"] = {5}; },
       "each of kept_inputs, which rise, must be an integer of 0 to 4, found "
       "the integer 5 for it"},
  };
  return all;
}

const std::vector<Case>& cases_of_attention() {
  static const auto& all = *new std::vector<Case>{
      {"undeclared", [](json& j) { j.erase("attention"); },
       "attention must be declared where the operation is 'attention' and "
       "nowhere else, found nothing for 'attention'"},
      {"declared", [](json& j) { j["operation"] = "sum"; },
       "attention must be declared where the operation is 'attention' and "
       "nowhere else, found it for 'sum'"},
      {"layout", [](json& j) { j["attention"]["layout"] = "sbhd"; },
       "attention.layout must be bhsd or bshd, found 'sbhd'"},
      {"softcap", [](json& j) { j["attention"]["softcap"] = -1; },
       "attention.softcap must be 0 or more, found -1"},
      {"scale", [](json& j) { j["attention"]["scale"] = "1"; },
       "attention.scale must be a finite number, found the string '1' for it"},
      {"role", [](json& j) { roles(j)["keys"] = "k"; },
       "roles must be among q, k, v, out, lse, sink_logits, doc_ids, "
       "q_doc_ids, valid_token_counts, q_offsets, prefix_lengths, tree_enter, "
       "tree_leave, picks, same_a to same_h, q_same_a to q_same_h, found "
       "'keys'"},
      {"a ninth name", [](json& j) { roles(j)["same_i"] = "ids"; },
       "roles must be among q, k, v, out, lse, sink_logits, doc_ids, "
       "q_doc_ids, valid_token_counts, q_offsets, prefix_lengths, tree_enter, "
       "tree_leave, picks, same_a to same_h, q_same_a to q_same_h, found "
       "'same_i'"},
      {"no role", [](json& j) { roles(j).erase("v"); },
       "attention must have the role v, found none for it"},
      {"role of nobody", [](json& j) { roles(j)["out"] = "o"; },
       "a role must name an input or an output, found 'o' for out"},
      {"role of an input", [](json& j) { roles(j)["out"] = "q"; },
       "out must be an output, found 'q'"},
      {"role of an output", [](json& j) { roles(j)["q"] = "out"; },
       "q must be an input, found 'out'"},
      {"role of another shape", [](json& j) { roles(j)["lse"] = "out"; },
       "lse must be F32 [1, 2, 16], found F32 [1, 2, 16, 8] for 'out'"},
      {"a size of k", [](json& j) { j["inputs"][1]["shape"][3] = 4; },
       "k must be F32 [1, 1, 16, 8], found F32 [1, 1, 16, 4] for 'k'"},
      {"three sizes",
       [](json& j) {
         j["inputs"][0]["shape"] = {2, 16, 8};
       },
       "q must have four sizes, none of them 0, found [2, 16, 8] for 'q'"},
      {"no queries",
       [](json& j) {
         j["inputs"][0]["shape"] = {1, 2, 0, 8};
       },
       "q must have four sizes, none of them 0, found [1, 2, 0, 8] for 'q'"},
      {"heads",
       [](json& j) {
         j["inputs"][0]["shape"][1] = 3;
         j["inputs"][1]["shape"][1] = 2;
       },
       "the heads of k must divide those of q, found 2 for 3"},
      {"whole numbers", [](json& j) { j["inputs"][0]["dtype"] = "I32"; },
       "q must be F32, BF16 or F16, found I32"},
      {"a fact", [](json& j) { roles(j).erase("doc_ids"); },
       "attention must have the role doc_ids, found none for it"},
      {"a tree", [](json& j) { j["attention"]["mask"] = "tree"; },
       "attention must have the role tree_enter, found none for it"},
      {"half a tree",
       [](json& j) {
         j["attention"]["mask"] = "tree";
         roles(j)["tree_enter"] = "ids";
       },
       "attention must have the role tree_leave, found none for it"},
      {"a tree of numbers", [](json& j) { roles(j)["tree_enter"] = "q"; },
       "tree_enter must be I32 [1, 16], found F32 [1, 2, 16, 8] for 'q'"},
      {"a tree of 64 bits",
       [](json& j) {
         j["inputs"][3] = {
             {"name", "leave"}, {"dtype", "I64"}, {"shape", {1, 16}}};
         roles(j)["tree_leave"] = "leave";
       },
       "tree_leave must be I32 [1, 16], found I64 [1, 16] for 'leave'"},
      {"a tree that it gives", [](json& j) { roles(j)["tree_enter"] = "lse"; },
       "tree_enter must be an input, found 'lse'"},
      {"ids of a name",
       [](json& j) { j["attention"]["mask"] = "causal | same(c)"; },
       "attention must have the role same_c, found none for it"},
      {"ids of another size", [](json& j) { roles(j)["same_h"] = "unused"; },
       "same_h must be I32 [1, 16], found BOOL [3] for 'unused'"},
      {"ids of queries alone", [](json& j) { roles(j)["q_same_a"] = "ids"; },
       "attention must have the role same_a, found none for it"},
      {"picks", [](json& j) { j["attention"]["mask"] = "blocks(16)"; },
       "attention must have the role picks, found none for it"},
      {"a router's picks",
       [](json& j) { j["attention"]["mask"] = "routed(top=2, block=4)"; },
       "attention must have the role picks, found none for it"},
      {"picks that it gives", [](json& j) { roles(j)["picks"] = "out"; },
       "picks must be an input, found 'out'"},
      {"picks of two sizes", [](json& j) { roles(j)["picks"] = "ids"; },
       "picks must be I32 [1, a divisor of 2 heads, 16, 1 or more], found I32 "
       "[1, 16] for 'ids'"},
      {"picks of three heads",
       [](json& j) {
         j["inputs"][3] = {
             {"name", "picks"}, {"dtype", "I32"}, {"shape", {1, 3, 16, 2}}};
         roles(j)["picks"] = "picks";
       },
       "picks must be I32 [1, a divisor of 2 heads, 16, 1 or more], found I32 "
       "[1, 3, 16, 2] for 'picks'"},
  };
  return all;
}

TEST(BridgeSpec, WhatIsWrongIsNamed) {
  for (const auto* cases : {&cases_of_the_file(), &cases_of_attention()}) {
    for (const Case& c : *cases) {
      json j = json::parse(golden());
      c.change(j);
      const auto spec = parse_bridge_spec(j.dump());
      ASSERT_FALSE(spec.ok()) << c.name;
      EXPECT_EQ(spec.error().message, "[bridge] " + c.error) << c.name;
    }
  }
}

// The shapes of Splash's kernel, made by the same script.
json splash() {
  return json::parse(
      *read_file("tests/golden/bridge/splash_heads.json", 1 << 20));
}

TEST(BridgeSpec, ASplashKernelHasTheSizesOfItsArrays) {
  const auto spec = parse_bridge_spec(splash().dump());
  ASSERT_TRUE(spec.ok()) << spec.error().message;
  ASSERT_TRUE(spec->splash.has_value());
  EXPECT_FALSE(spec->attention.has_value());
  const BridgeSplash& s = *spec->splash;
  EXPECT_EQ(s.dtype, Dtype::f32);
  EXPECT_EQ(s.shape.heads, 4);
  EXPECT_EQ(s.shape.kv_heads, 2);
  EXPECT_EQ(s.shape.head_dim, 16);
  EXPECT_EQ(s.shape.v_head_dim, 24);
  EXPECT_EQ(s.shape.scale_or_default(), 0.3);
  EXPECT_EQ(s.shape.softcap, 20);
  EXPECT_EQ(s.q_len, 256);
  EXPECT_EQ(s.kv_len, 384);
  EXPECT_EQ(s.block_q, 64);
  EXPECT_EQ(s.block_kv, 128);
  EXPECT_EQ(s.mask_heads, 4);
  EXPECT_EQ(s.width, 3);
  EXPECT_EQ(s.blocks, 24);
  json plain = splash();
  plain["splash"] = json::object();
  const auto read = parse_bridge_spec(plain.dump());
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_EQ(read->splash->shape.scale_or_default(), 0.25);
  EXPECT_EQ(read->splash->shape.softcap, 0);
}

TEST(BridgeSpec, WhatIsWrongWithASplashKernelIsNamed) {
  const auto shape = [](json& j, size_t input) -> json& {
    return j["inputs"][input]["shape"];
  };
  const Case wrong[] = {
      {"undeclared", [](json& j) { j.erase("splash"); },
       "splash must be declared where the operation is 'splash' and nowhere "
       "else, found nothing for 'splash'"},
      {"declared", [](json& j) { j["operation"] = "sum"; },
       "splash must be declared where the operation is 'splash' and nowhere "
       "else, found it for 'sum'"},
      {"a field", [](json& j) { j["splash"]["mask"] = "causal"; },
       "splash must have no other field, found 'mask' for one"},
      {"scale", [](json& j) { j["splash"]["scale"] = "1"; },
       "splash.scale must be a finite number, found the string '1' for it"},
      {"softcap", [](json& j) { j["splash"]["softcap"] = -1; },
       "splash must have a finite scale and a softcap of 0 or more, found 0.3 "
       "and -1"},
      {"a name", [](json& j) { j["inputs"][8]["name"] = "keys"; },
       "the inputs of splash must be q, k, v, data_next, mask_next, "
       "block_mask, mask_blocks, live_queries, live_keys, found 'q, k, v, "
       "data_next, mask_next, block_mask, mask_blocks, live_queries, keys'"},
      {"an output", [](json& j) { j["outputs"].erase(1); },
       "the outputs of splash must be out, lse, found 'out'"},
      {"two sizes",
       [&](json& j) {
         shape(j, 5) = {4, 4};
       },
       "block_mask of splash must have three sizes, none of them 0, found "
       "[4, 4]"},
      {"no blocks", [&](json& j) { shape(j, 6)[0] = 0; },
       "mask_blocks of splash must have three sizes, none of them 0, found "
       "[0, 64, 128]"},
      {"whole numbers", [](json& j) { j["inputs"][0]["dtype"] = "I32"; },
       "q must be F32, BF16 or F16, found I32"},
      {"heads", [&](json& j) { shape(j, 1)[0] = 3; },
       "the heads of k must divide those of q, found 3 for 4"},
      {"a block", [&](json& j) { shape(j, 6)[1] = 100; },
       "a block of splash must divide the tokens of q, at most 1073741824, "
       "found 100 for 256"},
      {"masks", [&](json& j) { shape(j, 5)[0] = 2; },
       "splash must have one mask or one a query head, found 2 for 4 heads"},
      {"rows", [&](json& j) { shape(j, 3)[1] = 5; },
       "data_next of splash must be I32 [4, 4, 3], found I32 [4, 5, 3]"},
      {"bits", [](json& j) { j["inputs"][6]["dtype"] = "I8"; },
       "mask_blocks of splash must be BOOL [24, 64, 128], found I8 [24, 64, "
       "128]"},
      {"keys", [&](json& j) { shape(j, 8)[0] = 4; },
       "live_keys of splash must be BOOL [2, 384], found BOOL [4, 384]"},
      {"values", [&](json& j) { shape(j, 2)[1] = 256; },
       "v of splash must be F32 [2, 384, 24], found F32 [2, 256, 24]"},
  };
  for (const Case& c : wrong) {
    json j = splash();
    c.change(j);
    const auto spec = parse_bridge_spec(j.dump());
    ASSERT_FALSE(spec.ok()) << c.name;
    EXPECT_EQ(spec.error().message, "[bridge] " + c.error) << c.name;
  }
}

TEST(BridgeSpec, AMaskErrorIsThatOfTheMask) {
  json j = json::parse(golden());
  j["attention"]["mask"] = "causal & widow(5, 0)";
  const auto spec = parse_bridge_spec(j.dump());
  ASSERT_FALSE(spec.ok());
  EXPECT_TRUE(spec.error().message.starts_with("[mask] "))
      << spec.error().message;
}

TEST(BridgeSpec, TextThatIsNoJsonIsRefused) {
  std::string nan = golden();
  nan.replace(nan.find("2.0"), 3, "NaN");
  EXPECT_TRUE(parse_bridge_spec(nan).error().message.starts_with(
      "[bridge] text must be valid JSON, found 'N' for line "));
  const std::string whole = golden();
  for (const size_t size : {size_t{0}, size_t{1}, whole.size() / 2}) {
    EXPECT_FALSE(parse_bridge_spec(whole.substr(0, size)).ok()) << size;
  }
  EXPECT_FALSE(parse_bridge_spec("[]").ok());
}

}  // namespace
}  // namespace tessera::bridge
