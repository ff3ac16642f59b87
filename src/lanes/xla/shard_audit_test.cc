// lanes/xla/shard_audit_test.cc: our programs for a mesh have the sharding of
// every array, and the audit finds each annotation that is removed.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "lanes/xla/shard_shape.h"
#include "tessera/shard.h"
#include "tests/attention_case.h"
#include "tests/attention_choices.h"
#include "tests/cpu_exchange.h"
#include "tests/hold_for_all.h"

namespace tessera::xla {
namespace {

struct Emitted {
  std::string what;
  Mesh mesh;
  ShardShape shape;
  ShardProgramArrays arrays;
  std::vector<ArraySpec> specs;  // as the shards report them
  Moved moved;
  std::string text;
};

// The programs of both directions of a random call on a random mesh.
std::vector<Emitted> random_programs(uint64_t seed) {
  testing::AttentionArrays arrays(
      testing::random_attention(testing::random_case(seed)));
  const testing::AttentionCase& c = arrays.c;
  std::mt19937_64 random(seed);
  Mesh mesh;
  mesh.axes = {{"seq", 1 + static_cast<int64_t>(random() % 8)}};
  if (random() % 2 == 0) mesh.axes.insert(mesh.axes.begin(), {"data", 2});
  if (random() % 3 == 0) mesh.axes.push_back({"copy", 2});
  ShardOptions options;
  options.uneven = true;
  options.shape = c.shape;
  options.dtype = c.dtype;
  options.dlse = c.dlse;
  options.balance = static_cast<Balance>(random() % 4);
  options.exchange = static_cast<TileExchange>(random() % 4);
  auto batch = BorrowedBatch::make(arrays.request, arrays.facts);
  EXPECT_TRUE(batch) << batch.error().message;
  // Heads are not split if a device would get half of a plan head's heads.
  const int64_t plan_heads = batch->plan().heads;
  const bool may_part =
      plan_heads == 1 || plan_heads % 2 == 0 || c.shape.kv_heads == 1;
  if (may_part && random() % 2 == 0) mesh.axes.push_back({"head", 2});
  for (MeshAxis& a : mesh.axes) {
    if (random() % 4 == 0) a = {a.name + "_of_mine", a.size, a.name};
  }
  auto shards = make_shards(*batch, mesh, options);
  EXPECT_TRUE(shards) << shards.error().message;
  const AttentionCall call = {c.shape, c.dtype, c.sinks, true, c.dlse};
  std::vector<Emitted> out;
  for (const bool backward : {false, true}) {
    auto text = program_text(*batch, *shards, call, backward);
    EXPECT_TRUE(text) << text.error().message;
    auto shape = shard_shape(*batch, *shards, call, backward);
    EXPECT_TRUE(shape) << shape.error().message;
    const ShardReport& r = shards->report;
    auto lie = shard_program_arrays(*batch, *shards, call, backward);
    EXPECT_TRUE(lie) << lie.error().message;
    out.push_back({describe(c) + " " + to_string(mesh), mesh, *shape, *lie,
                   shards->specs, backward ? r.backward : r.forward,
                   std::move(*text)});
  }
  return out;
}

// Expects that the shards' specs of token arrays equal those of the program.
void expect_specs_of_tokens(const Emitted& p) {
  std::set<std::string> of_tokens;
  for (const ArraySpec& s : p.specs) of_tokens.insert(s.name);
  size_t found = 0;
  for (const auto* arrays : {&p.arrays.arguments, &p.arrays.results}) {
    for (const ArraySpec& s : *arrays) {
      if (of_tokens.count(s.name) == 0) continue;
      EXPECT_EQ(std::ranges::count(p.specs, s), 1) << s.name << " " << p.what;
      ++found;
    }
  }
  // q, k, v, out, lse; backward also dout, dq, dk, dv.
  EXPECT_EQ(found, p.shape.local.backward ? 9U : 5U) << p.what;
}

TEST(ShardAudit, EveryProgramPassesAndHasRoomAsTheReportSays) {
  const int64_t n = testing::case_count(200);
  for (int64_t i = 0; i < n; ++i) {
    for (const Emitted& p :
         random_programs(testing::first_seed(1) + static_cast<uint64_t>(i))) {
      const auto audit = audit_program(p.text);
      ASSERT_TRUE(audit) << audit.error().message << "\n" << p.what;
      ASSERT_EQ(audit->partitions, p.mesh.devices()) << p.what;
      ASSERT_EQ(audit->boundaries.size(), 1U) << p.what;
      ASSERT_EQ(audit->boundaries[0].arrays.size(),
                audit->arguments.size() + audit->results.size());
      for (const AuditCollective& c : audit->collectives) {
        EXPECT_FALSE(c.repeats);
        EXPECT_EQ(c.sent_bytes.has_value(), c.op != "ragged_all_to_all");
      }
      // The specs in receipts and contracts equal those of the text.
      const std::vector<ArraySpec> specs = shard_program_specs(p.shape);
      ASSERT_TRUE(check_specs(p.mesh, specs));
      ASSERT_EQ(audit->fingerprint, spec_fingerprint(p.mesh, specs)) << p.what;
      expect_specs_of_tokens(p);
      ASSERT_EQ(testing::capacity_of(*audit), p.moved.capacity) << p.what;
    }
  }
}

// Plain causal attention, with the options of its shards.
struct CausalCall {
  explicit CausalCall(int64_t tokens)
      : arrays(testing::plain_attention("causal", tokens, tokens, 16)),
        batch(BorrowedBatch::make(arrays.request, arrays.facts)) {
    const testing::AttentionCase& c = arrays.c;
    call = {c.shape, c.dtype, c.sinks, true, c.dlse};
    options.shape = c.shape;
    options.dtype = c.dtype;
  }
  testing::AttentionArrays arrays;
  Result<BorrowedBatch> batch;
  AttentionCall call;
  ShardOptions options;
};

// All of K, and of V, comes by one op, and its gradients return by one op.
TEST(ShardAudit, AGatherIsOneOpForEachArray) {
  CausalCall of(512);
  ASSERT_TRUE(of.batch) << of.batch.error().message;
  of.options.exchange = TileExchange::gather;
  for (const Balance balance : {Balance::contiguous, Balance::tasks}) {
    of.options.balance = balance;
    auto shards =
        make_shards(*of.batch, *parse_mesh("seq=4,copy=2"), of.options);
    ASSERT_TRUE(shards) << shards.error().message;
    for (const bool backward : {false, true}) {
      auto text = program_text(*of.batch, *shards, of.call, backward);
      ASSERT_TRUE(text) << text.error().message;
      const auto audit = audit_program(*text);
      ASSERT_TRUE(audit) << audit.error().message;
      std::map<std::string, int> ops;
      for (const AuditCollective& one : audit->collectives) ++ops[one.op];
      EXPECT_EQ(ops["all_gather"], 2);
      EXPECT_EQ(ops["all_to_all"], backward ? 2 : 0);
      // Queries of moved tasks still travel in rounds.
      EXPECT_EQ(ops["collective_permute"] > 0, balance == Balance::tasks);
      EXPECT_EQ(
          testing::capacity_of(*audit),
          (backward ? shards->report.backward : shards->report.forward).sent);
    }
  }
}

// Meshes that split arrays in the same way still have different programs.
TEST(ShardAudit, ProgramsOfOtherSpecsHaveOtherKeys) {
  CausalCall of(256);
  ASSERT_TRUE(of.batch) << of.batch.error().message;
  std::set<std::string> fingerprints, keys;
  for (const char* text : {"seq=4", "data=1,seq=4", "seq=4,head=1",
                           "seq=4,copy=1", "copy=1,seq=4", "seq=4,copy=2"}) {
    auto shards = make_shards(*of.batch, *parse_mesh(text), of.options);
    ASSERT_TRUE(shards) << shards.error().message;
    for (const bool backward : {false, true}) {
      auto shape = shard_shape(*of.batch, *shards, of.call, backward);
      ASSERT_TRUE(shape) << shape.error().message;
      const std::string fingerprint = shard_fingerprint(*shape);
      const KernelContract contract =
          shard_contract(*shape, fingerprint, *shards, of.call, "cpu:any");
      // The key is the digest of a text that has the program's fingerprint.
      EXPECT_EQ(nlohmann::json::parse(contract.text)["sharding"], fingerprint);
      EXPECT_EQ(audit_program(program_text(*shape))->fingerprint, fingerprint);
      EXPECT_TRUE(fingerprints.insert(fingerprint).second) << text;
      EXPECT_TRUE(keys.insert(contract.key).second) << text;
    }
    // The specs alone change the key.
    auto shape = shard_shape(*of.batch, *shards, of.call, false);
    const auto key = [&] {
      return shard_contract(*shape, shard_fingerprint(*shape), *shards, of.call,
                            "cpu:any")
          .key;
    };
    const std::string is = key();
    EXPECT_EQ(program_text(backward_shape(*shape, of.call)),
              program_text(*shard_shape(*of.batch, *shards, of.call, true)));
    shape->mesh.axes.push_back({"more", 1});
    EXPECT_NE(key(), is);
  }
}

// The caller names the axes. Names appear in the text, and change nothing else.
TEST(ShardAudit, NamesOfAxesAreWordsAlone) {
  CausalCall of(256);
  ASSERT_TRUE(of.batch) << of.batch.error().message;
  auto plain = make_shards(*of.batch, *parse_mesh("copy=2,seq=4"), of.options);
  auto named =
      make_shards(*of.batch, *parse_mesh("tp:copy=2,cp:seq=4"), of.options);
  ASSERT_TRUE(plain) << plain.error().message;
  ASSERT_TRUE(named) << named.error().message;
  EXPECT_EQ(named->report.forward, plain->report.forward);
  EXPECT_EQ(named->report.backward, plain->report.backward);
  EXPECT_NE(named->contract_key, plain->contract_key);
  for (const bool backward : {false, true}) {
    const std::string due = *program_text(*of.batch, *plain, of.call, backward);
    std::string text = *program_text(*of.batch, *named, of.call, backward);
    const auto audit = audit_program(text);
    ASSERT_TRUE(audit) << audit.error().message;
    EXPECT_EQ(audit->meshes.front().axes,
              (std::vector<MeshAxis>{{"tp", 2}, {"cp", 4}}));
    for (const auto& [own, role] :
         {std::pair<std::string, std::string>{"\"tp\"", "\"copy\""},
          {"\"cp\"", "\"seq\""}}) {
      for (size_t at = text.find(own); at != std::string::npos;
           at = text.find(own, at + 1)) {
        text.replace(at, own.size(), role);
      }
    }
    EXPECT_EQ(text, due);
  }
}

// ---- Each annotation is removed, one at a time. ----

using Span = std::pair<size_t, size_t>;  // begin, end

// The span with a comma next to it.
Span with_comma(const std::string& text, size_t begin, size_t end) {
  if (text.compare(end, 2, ", ") == 0) return {begin, end + 2};
  if (begin >= 2 && text.compare(begin - 2, 2, ", ") == 0) begin -= 2;
  return {begin, end};
}

void add_all(const std::string& text, const std::string& begin,
             const std::string& end, std::vector<Span>& out) {
  for (size_t at = text.find(begin); at != std::string::npos;
       at = text.find(begin, at + 1)) {
    out.push_back(with_comma(text, at, text.find(end, at) + end.size()));
  }
}

// Adds each element of a list whose elements are in braces or brackets.
void add_words(const std::string& text, size_t at, char open, char close,
               std::vector<Span>& out) {
  for (; text[at] == open; at += 2) {
    const size_t end = text.find(close, at + 1) + 1;
    out.push_back(with_comma(text, at, end));
    at = end;
    if (text.compare(at, 2, ", ") != 0) return;
  }
}

std::vector<Span> annotations(const std::string& text) {
  std::vector<Span> out;
  add_all(text, " {sdy.sharding = ", ">}", out);  // arrays of main
  add_all(text, "<@mesh, [", "]>", out);  // also arrays of the computation
  add_all(text, " in_shardings=", "]>]", out);
  add_all(text, " out_shardings=", "]>]", out);
  add_all(text, " manual_axes=", "}", out);
  add_all(text, "sdy.mesh @mesh = ", "\n", out);
  add_all(text, "mhlo.num_partitions = ", "i32", out);
  const std::string dims = "<@mesh, [";
  for (size_t at = text.find(dims); at != std::string::npos;
       at = text.find(dims, at + 1)) {
    add_words(text, at + dims.size(), '{', '}', out);
  }
  const std::string axes = "manual_axes={";
  add_words(text, text.find(axes) + axes.size(), '"', '"', out);
  return out;
}

TEST(ShardAudit, EveryAnnotationThatIsMissingIsNoticed) {
  const int64_t n = testing::case_count(5);
  int64_t taken = 0;
  for (int64_t i = 0; i < n; ++i) {
    for (const Emitted& p :
         random_programs(testing::first_seed(7) + static_cast<uint64_t>(i))) {
      const auto audit = audit_program(p.text);
      ASSERT_TRUE(audit) << audit.error().message;
      size_t arrays = 0;
      size_t dims = 0;
      for (const auto* side : {&audit->arguments, &audit->results}) {
        arrays += side->size();
        for (const AuditArray& a : *side) dims += a.shape.size();
      }
      const std::vector<Span> all = annotations(p.text);
      // Each array in main and in the computation, with and without braces.
      ASSERT_EQ(all.size(), 3 * arrays + 2 * dims + 5 + p.mesh.axes.size());
      for (const Span& at : all) {
        std::string text = p.text;
        text.erase(at.first, at.second - at.first);
        const auto mutant = audit_program(text);
        ASSERT_FALSE(mutant)
            << "without " << p.text.substr(at.first, at.second - at.first)
            << "\n"
            << p.what;
        EXPECT_TRUE(mutant.error().message.starts_with("[audit] "));
        EXPECT_NE(mutant.error().message.find(" on line "), std::string::npos)
            << mutant.error().message;
        ++taken;
      }
    }
  }
  RecordProperty("taken", static_cast<int>(taken));
  EXPECT_GE(taken, 100 * n);
}

}  // namespace
}  // namespace tessera::xla
