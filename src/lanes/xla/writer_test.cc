// lanes/xla/writer_test.cc: the text that the writer prints, literally where
// errors are likely. xla_test.cc shows that plugins accept the text.
#include "lanes/xla/writer.h"

#include <gtest/gtest.h>

#include <array>

namespace tessera::xla {
namespace {

TEST(XlaWriter, PrintsTypes) {
  EXPECT_EQ(to_string(Type{Element::f32, {}}), "tensor<f32>");
  EXPECT_EQ(to_string(Type{Element::bf16, {2, 3}}), "tensor<2x3xbf16>");
}

TEST(XlaWriter, WritesAModule) {
  Writer w({{"a", {Element::f32, {2, 8}}}, {"b", {Element::f32, {3, 8}}}});
  const Value product =
      w.dot(w.argument("a"), w.argument("b"), {{}, {}, {1}, {1}});
  EXPECT_EQ(product.type, (Type{Element::f32, {2, 3}}));
  EXPECT_EQ(
      w.module("m", {product}),
      "module @m attributes {mhlo.num_partitions = 1 : i32, "
      "mhlo.num_replicas = 1 : i32} {\n"
      "  func.func public @main(%a: tensor<2x8xf32>, %b: tensor<3x8xf32>) -> "
      "(tensor<2x3xf32>) {\n"
      "    %0 = \"stablehlo.dot_general\"(%a, %b) {dot_dimension_numbers = "
      "#stablehlo.dot<lhs_batching_dimensions = [], rhs_batching_dimensions = "
      "[], lhs_contracting_dimensions = [1], rhs_contracting_dimensions = [1]>"
      ", precision_config = [#stablehlo<precision HIGHEST>, "
      "#stablehlo<precision HIGHEST>]} : (tensor<2x8xf32>, tensor<3x8xf32>) "
      "-> tensor<2x3xf32>\n"
      "    \"func.return\"(%0) : (tensor<2x3xf32>) -> ()\n"
      "  }\n"
      "}\n");
}

// Decimals would be parsed as another number.
TEST(XlaWriter, PrintsTheBitsOfReals) {
  Writer w({});
  const Value third = w.real(1.0F / 3, {4});
  EXPECT_NE(w.module("m", {third}).find("dense<0x3EAAAAAB> : tensor<4xf32>"),
            std::string::npos);
}

TEST(XlaWriter, ShapesFollowTheirOps) {
  Writer w({{"x", {Element::bf16, {2, 4, 6}}}});
  const Value& x = w.argument("x");
  EXPECT_EQ(w.reduce_max(x, {0, 2}).type, (Type{Element::bf16, {4}}));
  const Value weights = w.convert(x, Element::f32);
  EXPECT_EQ(w.dot(weights, weights, {{0}, {0}, {1}, {1}}).dims(),
            (Dims{2, 6, 6}));
  EXPECT_EQ(w.compare(Compare::less, x, x).type,
            (Type{Element::i1, {2, 4, 6}}));
  const Value zero = w.integer(0);
  EXPECT_EQ(w.slice(x, std::array{zero, zero, zero}, {1, 4, 2}).dims(),
            (Dims{1, 4, 2}));
}

// Each result of a loop or a choice has the op's name and a number.
TEST(XlaWriter, NumbersTheResultsOfRegions) {
  Writer w({{"n", {Element::i32, {}}}});
  const Value zero = w.integer(0);
  const auto out = w.count(zero, w.argument("n"), {zero, w.real(1)},
                           [&](const Value& i, const Writer::Values& c) {
                             return Writer::Values{w.add(c[0], i), c[1]};
                           });
  ASSERT_EQ(out.size(), 2U);
  EXPECT_TRUE(out[0].name.ends_with("#1")) << out[0].name;
  EXPECT_EQ(out[1].type, (Type{Element::f32, {}}));
  const auto one = w.choose(
      w.compare(Compare::less, zero, out[0]),
      [&] { return Writer::Values{out[1]}; },
      [&] { return Writer::Values{w.real(0)}; });
  EXPECT_EQ(one.front().name.find('#'), std::string::npos);
  const std::string text = w.module("m", one);
  EXPECT_NE(text.find(":3 = \"stablehlo.while\""), std::string::npos);
  EXPECT_NE(text.find("= \"stablehlo.case\""), std::string::npos);
}

}  // namespace
}  // namespace tessera::xla
