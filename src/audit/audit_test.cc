// audit/audit_test.cc: small programs with one error each, and programs as JAX
// writes them. lanes/xla/shard_audit_test.cc audits this library's programs.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "base/files.h"
#include "tessera/shard.h"

namespace tessera {
namespace {

// A parameter and a result, a manual computation and a constraint.
const std::string kProgram =
    "module @m attributes {mhlo.num_partitions = 4 : i32} {\n"
    "  sdy.mesh @mesh = <[\"data\"=2, \"seq\"=2]>\n"
    "  func.func public @main(%a: tensor<8x6xf32> {sdy.sharding = "
    "#sdy.sharding<@mesh, [{\"data\"}, {\"seq\"}]>}) -> (tensor<8x6xf32> "
    "{sdy.sharding = #sdy.sharding<@mesh, [{}, {\"seq\"}]>}) {\n"
    "    %0 = sdy.manual_computation(%a) in_shardings=[<@mesh, [{\"data\"}, "
    "{\"seq\"}]>] out_shardings=[<@mesh, [{\"data\"}, {\"seq\"}]>] "
    "manual_axes={\"data\", \"seq\"} (%b: tensor<4x3xf32>) {\n"
    "      %1 = \"stablehlo.collective_permute\"(%b) <{source_target_pairs = "
    "dense<[[0, 1], [1, 0], [2, 2]]> : tensor<3x2xi64>}> : (tensor<4x3xf32>) "
    "-> tensor<4x3xf32>\n"
    "      sdy.return %1 : tensor<4x3xf32>\n"
    "    } : (tensor<8x6xf32>) -> tensor<8x6xf32>\n"
    "    %2 = sdy.sharding_constraint %0 <@mesh, [{}, {\"seq\"}]> : "
    "tensor<8x6xf32>\n"
    "    return %2 : tensor<8x6xf32>\n"
    "  }\n"
    "}\n";

std::string with(const std::string& from, const std::string& to) {
  std::string out = kProgram;
  const size_t at = out.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return out.replace(at, from.size(), to);
}

std::string said(const std::string& text) {
  const auto audit = audit_program(text);
  return audit ? "it passed" : audit.error().message;
}

TEST(Audit, TellsHowEveryArrayLies) {
  const auto audit = audit_program(kProgram);
  ASSERT_TRUE(audit) << audit.error().message;
  EXPECT_EQ(audit->partitions, 4);
  ASSERT_EQ(audit->meshes.size(), 1U);
  EXPECT_EQ(audit->meshes[0].name, "mesh");
  EXPECT_EQ(audit->meshes[0].devices, 4);
  ASSERT_EQ(audit->arguments.size(), 1U);
  const AuditArray& a = audit->arguments[0];
  EXPECT_EQ(a.name, "a");
  EXPECT_EQ(a.dtype, "f32");
  EXPECT_EQ(a.shape, (std::vector<int64_t>{8, 6}));
  EXPECT_EQ(a.part, (std::vector<int64_t>{4, 3}));
  EXPECT_EQ(a.part_bytes, 48);
  EXPECT_EQ(a.sharding, "[{\"data\"}, {\"seq\"}]");
  ASSERT_EQ(audit->results.size(), 1U);
  EXPECT_EQ(audit->results[0].part, (std::vector<int64_t>{8, 3}));
  ASSERT_EQ(audit->boundaries.size(), 2U);
  EXPECT_EQ(audit->boundaries[0].line, 4);
  EXPECT_EQ(audit->boundaries[0].arrays.size(), 2U);
  EXPECT_EQ(audit->boundaries[1].op, "sdy.sharding_constraint");
  ASSERT_EQ(audit->collectives.size(), 1U);
  // One of the three pairs has equal source and target.
  EXPECT_EQ(audit->collectives[0].operand_bytes, 48);
  EXPECT_EQ(audit->collectives[0].sent_bytes, 96);
  EXPECT_FALSE(audit->collectives[0].repeats);
}

TEST(Audit, TheFingerprintIsOfNameDtypeShapeAndSharding) {
  const std::string whole = audit_program(kProgram)->fingerprint;
  EXPECT_EQ(whole.size(), 32U);
  // Comments, locations and inner operations do not count.
  const auto same = audit_program(
      with("    return %2", "    // a comment\n    return loc(\"x\") %2"));
  ASSERT_TRUE(same) << same.error().message;
  EXPECT_EQ(same->fingerprint, whole);
  std::vector<std::string> all = {whole};
  for (const auto& [from, to] :
       std::vector<std::pair<std::string, std::string>>{
           {"%a: tensor<8x6xf32>", "%c: tensor<8x6xf32>"},
           {"%a: tensor<8x6xf32>", "%a: tensor<8x6xi32>"},
           {"%a: tensor<8x6xf32>", "%a: tensor<16x6xf32>"},
           {"#sdy.sharding<@mesh, [{\"data\"}, {\"seq\"}]>",
            "#sdy.sharding<@mesh, [{\"seq\"}, {\"data\"}]>"},
           {"#sdy.sharding<@mesh, [{\"data\"}, {\"seq\"}]>",
            "#sdy.sharding<@mesh, [{}, {}]>"},
           {"#sdy.sharding<@mesh, [{}, {\"seq\"}]>",
            "#sdy.sharding<@mesh, [{\"data\"}, {\"seq\"}]>"}}) {
    const auto other = audit_program(with(from, to));
    ASSERT_TRUE(other) << other.error().message;
    all.push_back(other->fingerprint);
  }
  for (size_t i = 0; i < all.size(); ++i) {
    for (size_t j = 0; j < i; ++j) EXPECT_NE(all[i], all[j]) << i << " " << j;
  }
}

struct Wrong {
  std::string from, to, message;
};

TEST(Audit, WhatIsNotSaidIsRefusedByItsName) {
  const std::string in = "in_shardings=[<@mesh, [{\"data\"}, {\"seq\"}]>]";
  const std::string of_a =
      " {sdy.sharding = #sdy.sharding<@mesh, [{\"data\"}, {\"seq\"}]>}";
  const std::string of_result =
      " {sdy.sharding = #sdy.sharding<@mesh, [{}, {\"seq\"}]>}";
  for (const Wrong& w : std::vector<Wrong>{
           {of_a, "",
            "a parameter must have a sharding, found none for %a on line 3"},
           {of_a, " {jax.arg_info = \"x\"}",
            "a parameter must have a sharding, found none for %a on line 3"},
           {of_result, "",
            "a result must have a sharding, found none for result 0 on line 3"},
           {in, "",
            "a boundary must have its in_shardings, found none for "
            "sdy.manual_computation on line 4"},
           {in, "in_shardings=[]",
            "each array of a boundary must have a sharding, found 0 for the 1 "
            "that go in sdy.manual_computation on line 4"},
           {" manual_axes={\"data\", \"seq\"}", "",
            "a boundary must have its manual_axes, found none for "
            "sdy.manual_computation on line 4"},
           {"manual_axes={\"data\", \"seq\"}", "manual_axes={\"data\"}",
            "all axes of a mesh must be manual within a computation, found "
            "'seq' left to the compiler for sdy.manual_computation on line 4"},
           {"%0 <@mesh, [{}, {\"seq\"}]>", "%0",
            "a boundary must have a sharding, found none for "
            "sdy.sharding_constraint on line 8"},
           {"  sdy.mesh @mesh = <[\"data\"=2, \"seq\"=2]>\n", "",
            "a sharding must name a mesh of the program, found '@mesh' for a "
            "sharding on line 2"},
           {"mhlo.num_partitions = 4 : i32", "",
            "a module must say mhlo.num_partitions = 1 to 1048576, found none "
            "on line 1"},
           {"[{\"data\"}, {\"seq\"}]", "[{\"data\", ?}, {\"seq\"}]",
            "a dimension must not be left to the compiler, found '?' for "
            "dimension 0 of %a on line 3"}}) {
    EXPECT_EQ(said(with(w.from, w.to)), "[audit] " + w.message) << w.to;
  }
}

TEST(Audit, WhatDoesNotFitIsRefused) {
  const std::string of_a = "#sdy.sharding<@mesh, [{\"data\"}, {\"seq\"}]>";
  const auto sharded = [&](const std::string& to) {
    return said(with(of_a, "#sdy.sharding<" + to + ">"));
  };
  EXPECT_EQ(sharded("@other, [{}, {}]"),
            "[audit] a sharding must name a mesh of the program, found "
            "'@other' for a sharding on line 3");
  EXPECT_EQ(sharded("@mesh, [{\"head\"}, {}]"),
            "[audit] an axis must be of the mesh data=2,seq=2, found 'head' "
            "for a sharding on line 3");
  EXPECT_EQ(sharded("@mesh, [{\"data\"}]"),
            "[audit] a sharding must have a word for each dimension, found 1 "
            "for the 2 of %a on line 3");
  EXPECT_EQ(sharded("@mesh, [{\"seq\"}, {\"seq\"}]"),
            "[audit] an axis must stand once in a sharding, found 'seq' twice "
            "for a sharding on line 3");
  EXPECT_EQ(sharded("@mesh, [{\"seq\"}, {}], replicated={\"seq\"}"),
            "[audit] an axis must stand once in a sharding, found 'seq' twice "
            "for a sharding on line 3");
  EXPECT_EQ(sharded("@mesh, [{}, {\"data\", \"seq\"}]"),
            "[audit] axes must divide what they split, found 4 for dimension 1 "
            "of %a, which is 6, on line 3");
  EXPECT_EQ(sharded("@mesh, [{\"data\":(1)4}, {}]"),
            "[audit] a part of an axis must divide it, found (1)4 of 'data'=2 "
            "for a sharding on line 3");
  EXPECT_EQ(sharded("@mesh, [{\"data\"}, {}]; "),
            "[audit] a program must be MLIR text, found ';' on line 3");
  EXPECT_EQ(said(with("\"seq\"=2]>", "\"seq\"=4]>")),
            "[audit] a mesh must have the 4 devices of its module, found 8 for "
            "'@mesh' on line 2");
  EXPECT_EQ(said(with("\"seq\"=2]>", "\"data\"=2]>")),
            "[audit] an axis must stand once in a mesh, found two for 'data' "
            "on line 2");
  EXPECT_EQ(said(with("(%b: tensor<4x3xf32>)", "(%b: tensor<4x6xf32>)")),
            "[audit] a device must have its part tensor<4x3xf32>, found "
            "tensor<4x6xf32> for in 0 of sdy.manual_computation on line 4");
  EXPECT_EQ(said(with("sdy.return %1 : tensor<4x3xf32>",
                      "sdy.return %1 : tensor<4x3xf16>")),
            "[audit] a device must have its part tensor<4x3xf32>, found "
            "tensor<4x3xf16> for out 0 of sdy.manual_computation on line 4");
  EXPECT_EQ(said(with("%a: tensor<8x6xf32>", "%a: tensor<?x6xf32>")),
            "[audit] an array must have static sizes and a plain dtype, found "
            "'tensor<?x6xf32>' on line 3");
  EXPECT_EQ(said(with("%a: tensor<8x6xf32>",
                      "%a: tensor<4611686018427387904x6xf32>")),
            "[audit] an array must have at most 2^63 bits, found "
            "tensor<4611686018427387904x6xf32> on line 3");
  EXPECT_EQ(said(with("[1, 0], [2, 2]", "[1, 0], [2, 4]")),
            "[audit] devices of a collective must be among 4 and stand once, "
            "found 4 on line 5");
  EXPECT_EQ(said(with("[1, 0], [2, 2]", "[1, 0], [0, 2]")),
            "[audit] devices of a collective must be among 4 and stand once, "
            "found 0 twice on line 5");
  const std::string pairs = "[[0, 1], [1, 0], [2, 2]]> : tensor<3x2xi64>";
  for (const auto& [to, columns] :
       {std::pair{"[[0, 1, 2], [1, 0, 2]]> : tensor<2x3xi64>", 3},
        std::pair{"[[0, 1, 1, 0]]> : tensor<1x4xi64>", 4},
        std::pair{"[[0], [1], [2]]> : tensor<3x1xi64>", 1},
        std::pair{"> : tensor<0x0xi64>", 0}}) {
    EXPECT_EQ(said(with(pairs, to)),
              "[audit] source_target_pairs must have 2 devices each, found " +
                  std::to_string(columns) + " on line 5");
  }
}

TEST(Audit, WhatItCannotReadIsRefused) {
  EXPECT_EQ(said("ML\xefR\rStableHLO"),
            "[audit] a program must be text, found MLIR bytecode "
            "(stablehlo-translate --deserialize, or mlir_module() of what JAX "
            "exported, gives text)");
  EXPECT_EQ(said(""), "[audit] a program must be a module, found none");
  EXPECT_EQ(said(kProgram + kProgram),
            "[audit] a program must be one module, found another on line 12");
  EXPECT_EQ(said("\"builtin.module\"() ({}) : () -> ()"),
            "[audit] a module, a function and a mesh must be written in their "
            "own form, found \"builtin.module\" on line 1");
  EXPECT_EQ(said(with("public @main", "private @main")),
            "[audit] the function main must be public and stand once, found it "
            "private on line 3");
  EXPECT_EQ(said(with("@main", "@other")),
            "[audit] a program must have a function main, found none");
  EXPECT_EQ(said(with("sdy.sharding_constraint %0 <@mesh, [{}, {\"seq\"}]>",
                      "sdy.all_slice [{}, {\"seq\"}] %0")),
            "[audit] an operation must be one that an audit can read, found "
            "'sdy.all_slice' on line 8");
  EXPECT_EQ(said(with("%2 = sdy",
                      "%2 = stablehlo.custom_call @xla.sdy.Any(%0) "
                      ": (tensor<8x6xf32>) -> tensor<8x6xf32>\n"
                      "%3 = sdy")),
            "[audit] an operation must be one that an audit can read, found "
            "'xla.sdy.Any' on line 8");
  // An operation in a place where none can be.
  EXPECT_EQ(said(with("public @main", "public @main attributes {x = [sdy.y]}")),
            "[audit] an operation must be one that an audit can read, found "
            "'sdy.y' on line 3");
  EXPECT_EQ(said("module {"),
            "[audit] brackets must pair, found '{' open on "
            "line 1");
  EXPECT_EQ(said("module }"),
            "[audit] brackets must pair, found '}' on line 1");
  EXPECT_EQ(said("module \"a\nb\""),
            "[audit] a string must end on its line, found none on line 1");
  std::string deep = "module attributes {mhlo.num_partitions = 1 : i32} {";
  for (int i = 0; i < 300; ++i) deep += "\"a.b\"() ({\n^bb0:\n";
  for (int i = 0; i < 300; ++i) deep += "}) : () -> ()\n";
  EXPECT_EQ(said(deep + "}"),
            "[audit] regions must nest at most 256 deep, found more on line "
            "511");
}

// Long lists are read in linear time; quadratic time would take minutes.
TEST(Audit, LongListsTakeNoLongTime) {
  std::string text = "module attributes {mhlo.num_partitions = 1 : i32} {\n";
  text += "func.func public @main() { func.return %a";
  for (int i = 0; i < 400000; ++i) text += ", %a";
  const auto audit = audit_program(text + "\n}\n}");
  EXPECT_TRUE(audit) << audit.error().message;
}

// ---- Programs as JAX writes them (0.10.2, 4 CPU devices as data=2, seq=2).

Audit read_golden(const std::string& name) {
  const auto text = read_file("tests/golden/audit/" + name, 1 << 20);
  EXPECT_TRUE(text) << text.error().message;
  auto audit = audit_program(*text);
  EXPECT_TRUE(audit) << audit.error().message;
  return audit ? std::move(*audit) : Audit();
}

// op, bytes sent, whether it repeats
using Sent = std::vector<std::tuple<std::string, int64_t, bool>>;
Sent sent_of(const Audit& audit) {
  Sent out;
  for (const AuditCollective& c : audit.collectives) {
    out.emplace_back(c.op, c.sent_bytes.value_or(-1), c.repeats);
  }
  return out;
}

TEST(AuditOfJax, ShardMapIsRead) {
  const Audit audit = read_golden("shard_map.mlir");
  ASSERT_EQ(audit.arguments.size(), 2U);
  EXPECT_EQ(audit.arguments[1].sharding, "[{}, {\"seq\"}]");
  ASSERT_EQ(audit.boundaries.size(), 1U);
  EXPECT_EQ(audit.boundaries[0].arrays.size(), 5U);
  // Two groups of two; the sum of one number uses one group of four.
  EXPECT_EQ(sent_of(audit), (Sent{{"all_gather", 2 * 2 * 64, false},
                                  {"all_gather", 2 * 2 * 32, false},
                                  {"all_reduce", 2 * 2 * 64, false},
                                  {"reduce_scatter", 2 * 128, false},
                                  {"collective_permute", 4 * 64, false},
                                  {"all_to_all", 2 * 64, false},
                                  {"all_to_all", 2 * 64, false},
                                  {"all_reduce", 2 * 3 * 2, false},
                                  {"collective_permute", 4 * 64, true}}));
}

TEST(AuditOfJax, TheOldFormIsRead) {
  const Audit audit = read_golden("shard_map_old.mlir");
  ASSERT_EQ(audit.arguments.size(), 2U);
  EXPECT_EQ(audit.arguments[1].part, (std::vector<int64_t>{8, 2}));
  EXPECT_EQ(audit.boundaries.size(), 10U);
  EXPECT_EQ(audit.collectives.size(), 9U);
  auto text = read_file("tests/golden/audit/shard_map_old.mlir", 1 << 20);
  ASSERT_TRUE(text);
  const std::string before = "{devices=[2,2]<=[4]}";
  const size_t at = text->find(before);
  for (const auto& [to, found] :
       std::vector<std::pair<std::string, std::string>>{
           {"{devices=[3,2]<=[4]}", ""},
           {"{devices=[2,2]<=[8]}", ""},
           {"{devices=[2,2]0,1,2,2}", ""},
           {"{devices=[2,2]<=[2,2]T(1,1)}", ""},
           {"{manual}", ""},
           {"{devices=[2,2]<=[4]} ", ""},
           {"{devices=[4]<=[4]}",
            "[audit] a sharding must have a word for each dimension, found 1 "
            "for the 2 of %arg0 on line 2"}}) {
    std::string other = *text;
    other.replace(at, before.size(), to);
    EXPECT_EQ(said(other),
              !found.empty() ? found
                             : "[audit] an mhlo.sharding must say how an array "
                               "lies on 4 devices, found '" +
                                   to + "' for %arg0 on line 2");
  }
  std::string listed = *text;
  listed.replace(at, before.size(), "{devices=[2,2]0,2,1,3}");
  EXPECT_EQ(said(listed), "it passed");
}

TEST(AuditOfJax, JitIsRead) {
  const Audit audit = read_golden("jit.mlir");
  ASSERT_EQ(audit.results.size(), 2U);
  EXPECT_EQ(audit.results[0].sharding, "[]");
  EXPECT_EQ(audit.results[1].sharding, "[{\"data\", \"seq\"}, {}]");
  EXPECT_EQ(audit.results[1].part, (std::vector<int64_t>{4, 4}));
}

}  // namespace
}  // namespace tessera
