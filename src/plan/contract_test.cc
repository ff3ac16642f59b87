// plan/contract_test.cc: which terms may change the key, and which may not.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <set>

#include "plan/make_plan.h"
#include "tessera/batch.h"
#include "tessera/layouts.h"
#include "tests/random_tree.h"

namespace tessera::plan {
namespace {

Request request_of(const char* mask, int64_t tokens, int64_t tile = 64) {
  Request r;
  r.masks = {*parse_mask(mask)};
  r.q_len = r.kv_len = tokens;
  r.tile = {tile, tile};
  return r;
}

PlanContract contract_of(const Request& r, const Facts& f = {}) {
  auto plan = make_plan(r, f);
  EXPECT_TRUE(plan.ok()) << plan.error().message;
  auto c = make_contract(*BorrowedBatch::make(r, f));
  EXPECT_TRUE(c.ok()) << c.error().message;
  return *c;
}

std::vector<int32_t> packed(uint64_t seed, int64_t tokens, int64_t mean) {
  std::mt19937_64 engine(seed);
  std::vector<int32_t> ids(static_cast<size_t>(tokens));
  int32_t id = 0;
  for (int32_t& out : ids) {
    id += engine() % static_cast<uint64_t>(mean) == 0;
    out = id;
  }
  return ids;
}

TEST(Contract, BucketsArePowersOfTwoAndHalfWayBetween) {
  const int64_t expected[] = {0,  1,  2,  3,  4,  6,  6,  8, 8,
                              12, 12, 12, 12, 16, 16, 16, 16};
  for (int64_t n = 0; n <= 16; ++n) {
    EXPECT_EQ(bucket(n), expected[n]) << n;
  }
  EXPECT_EQ(bucket(1499), 1536);
  EXPECT_EQ(bucket(1537), 2048);
  for (int64_t n = 1; n < 5000; ++n) {
    EXPECT_GE(bucket(n), n);
    EXPECT_LE(bucket(n) * 2, 3 * n) << n;  // at most 1.5 times n
    EXPECT_EQ(bucket(bucket(n)), bucket(n));
  }
}

// Golden: a key must be the same in every process and on every machine.
TEST(Contract, KeyAndTextAreStable) {
  const PlanContract c =
      contract_of(request_of("window(1000, 0) & causal", 4096));
  EXPECT_EQ(c.text,
            "{\"batch\":1,\"facts\":[],\"heads\":1,\"kv_len\":4096,"
            "\"logical_block\":[64,64],\"masks\":[{\"mask\":\"causal & "
            "window(1024, 0)\",\"names\":[]}],\"q_len\":4096,\"steps\":1024,"
            "\"tile\":[64,64],\"version\":0,\"width\":24,"
            "\"width_transposed\":24}");
  EXPECT_EQ(c.key, "9826b59db3dc0df30df5b4905a11e211");
  EXPECT_EQ(c.window_bounds, (std::vector<int64_t>{1000, 0}));
  ASSERT_FALSE(c.folded.empty());
  EXPECT_EQ(c.folded[0],
            "mask causal & window(1000, 0) is causal & window(1024, 0), its "
            "window bounds are runtime scalars");
}

TEST(Contract, CeilingsGiveEveryBatchOneKey) {
  Request r = request_of("causal & documents", 2048);
  r.ceilings = {1024, 33};
  std::string key;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    const std::vector<int32_t> ids = packed(seed, 2048, 50 + 10 * seed);
    Facts f;
    f.doc_ids = ids;
    const std::string k = contract_of(r, f).key;
    if (seed == 0) key = k;
    EXPECT_EQ(k, key) << "seed " << seed;
  }
}

// A program reads the tree at run time.
TEST(Contract, EveryTreeUnderTheCeilingsHasOneKey) {
  Request r = request_of("tree", 512);
  r.ceilings = {64, 8};
  std::set<std::string> keys;
  for (uint64_t seed = 0; seed < 30; ++seed) {
    std::mt19937_64 random(seed);
    std::vector<int32_t> enter, leave;
    testing::append_random_tree(random, 512, 512, enter, leave);
    Facts f;
    f.tree_enter = enter;
    f.tree_leave = leave;
    const PlanContract c = contract_of(r, f);
    keys.insert(c.key);
    EXPECT_NE(c.text.find("\"facts\":[\"tree_enter\",\"tree_leave\"]"),
              std::string::npos);
    EXPECT_NE(c.text.find("\"names\":[\"tree\"]"), std::string::npos);
  }
  EXPECT_EQ(keys.size(), 1u);
}

// A program reads the groups at run time.
TEST(Contract, NamedIdsUnderTheCeilingsHaveOneKey) {
  Request r = request_of("causal | same(b)", 512);
  r.ceilings = {64, 8};
  std::set<std::string> keys;
  for (int32_t length = 3; length < 90; length += 4) {
    std::vector<int32_t> ids;
    for (int32_t i = 0; i < 512; ++i) ids.push_back(i / length % 5 - 1);
    Facts f;
    f.same_ids[1] = ids;
    const PlanContract c = contract_of(r, f);
    keys.insert(c.key);
    EXPECT_NE(c.text.find("\"facts\":[\"same_b\"]"), std::string::npos);
    EXPECT_NE(c.text.find("\"names\":[\"same(b)\"]"), std::string::npos);
    f.same_ids[0] = ids;
    EXPECT_EQ(contract_of(r, f).key, c.key);  // no mask names it
  }
  EXPECT_EQ(keys.size(), 1u);
  Request other = request_of("causal | same(a)", 512);
  other.ceilings = r.ceilings;
  const std::vector<int32_t> ids(512, 0);
  Facts f;
  f.same_ids[0] = ids;
  EXPECT_EQ(keys.count(contract_of(other, f).key), 0u);
}

TEST(Contract, AboveACeilingIsAnErrorThatNamesIt) {
  const std::pair<Ceilings, const char*> cases[] = {
      {{527, 0}, "[contract] steps must be at most max_steps 527, found 528"},
      {{0, 31}, "[contract] grid width must be at most max_width 31, found 32"},
  };
  for (const auto& [ceilings, message] : cases) {
    Request r = request_of("causal", 2048);
    r.ceilings = ceilings;
    auto plan = make_plan(r, {});
    ASSERT_TRUE(plan.ok());
    auto c = make_contract(*BorrowedBatch::make(r, {}));
    ASSERT_FALSE(c.ok());
    EXPECT_EQ(c.error().message, message);
    EXPECT_EQ(c.error().kind, ErrorKind::limit);
    r.ceilings = {ceilings.max_steps ? 528 : 0, ceilings.max_width ? 32 : 0};
    EXPECT_TRUE(make_contract(*BorrowedBatch::make(r, {})).ok());
  }
  // The first key is a sink: rows have few tiles, but all see its column.
  Request r = request_of("window(0, 0) | sink(1)", 2048);
  r.ceilings = {0, 2};
  auto plan = make_plan(r, {});
  ASSERT_TRUE(plan.ok());
  auto c = make_contract(*BorrowedBatch::make(r, {}));
  ASSERT_FALSE(c.ok());
  EXPECT_EQ(c.error().message,
            "[contract] transposed grid width must be at most max_width 2, "
            "found 32");
}

// One pick per query, so that a row of 64 queries picks `wide` blocks.
std::vector<int32_t> picks_of(int64_t tokens, int32_t wide) {
  std::vector<int32_t> picks;
  for (int64_t q = 0; q < tokens; ++q) {
    picks.push_back(static_cast<int32_t>(q) % wide);
  }
  return picks;
}

// Golden: the key must not change.
TEST(Contract, PicksHaveAMeaningAndAUnionOfAClass) {
  Request r = request_of("blocks(16)", 256);
  const auto picks = picks_of(256, 5);
  Facts f;
  f.picks = Picks{picks, 1, 1};
  const PlanContract c = contract_of(r, f);
  EXPECT_EQ(c.text,
            "{\"batch\":1,\"facts\":[\"picks\"],\"heads\":1,\"kv_len\":256,"
            "\"logical_block\":[64,64],\"masks\":[{\"mask\":\"blocks(16)\","
            "\"names\":[\"picks\"]}],\"picks\":{\"meaning\":\"exact\","
            "\"union\":6},\"q_len\":256,\"steps\":12,\"tile\":[64,64],"
            "\"version\":0,\"width\":2,\"width_transposed\":4}");
  EXPECT_EQ(c.union_blocks, 6);
  EXPECT_NE(std::find(c.folded.begin(), c.folded.end(),
                      "a tile row's union 5 is bucket 6"),
            c.folded.end());
  // The key depends on the union's bucket and on the meaning.
  const auto six = picks_of(256, 6);
  const auto three = picks_of(256, 3);
  f.picks->blocks = six;
  EXPECT_EQ(contract_of(r, f).key, c.key);
  f.picks->blocks = three;
  EXPECT_NE(contract_of(r, f).text, c.text);
  const std::vector<int32_t> equal(256, 2);
  f.picks->blocks = equal;
  const PlanContract exact = contract_of(r, f);
  f.picks->meaning = RouteMeaning::tile_union;
  const PlanContract shared = contract_of(r, f);
  EXPECT_NE(exact.key, shared.key);
  f.picks->query_tile = 64;  // the tile's size, explicit
  EXPECT_EQ(contract_of(r, f).key, shared.key);
  f.picks->query_tile = 32;
  EXPECT_NE(contract_of(r, f).key, shared.key);
  // If no query has picks, the bucket is still 1, not 0.
  const std::vector<int32_t> none(256, -1);
  f.picks->blocks = none;
  EXPECT_EQ(contract_of(r, f).union_blocks, 1);
}

TEST(Contract, UnionsHaveACeiling) {
  Request r = request_of("causal & blocks(16)", 256);
  r.ceilings = {64, 8, 4};
  Facts f;
  f.picks = Picks{{}, 1, 1};
  auto ceiling = make_ceiling_contract(r, f);
  ASSERT_TRUE(ceiling.ok()) << ceiling.error().message;
  EXPECT_EQ(ceiling->union_blocks, 4);
  for (int32_t wide = 1; wide <= 4; ++wide) {
    const auto picks = picks_of(256, wide);
    f.picks->blocks = picks;
    EXPECT_EQ(contract_of(r, f).key, ceiling->key) << wide;
  }
  auto picks = picks_of(256, 4);
  picks[130] = 4;  // in the third tile row
  f.picks->blocks = picks;
  auto c = make_contract(*BorrowedBatch::make(r, f));
  ASSERT_FALSE(c.ok());
  EXPECT_EQ(c.error().kind, ErrorKind::limit);
  EXPECT_EQ(c.error().message,
            "[contract] a tile row's union must be at most max_union 4 blocks, "
            "found 5 for tile row 2 of batch row 0, head 0");
  // Without a ceiling the union is all blocks of the kv_len bucket.
  r.ceilings.max_union = 0;
  EXPECT_EQ(make_ceiling_contract(r, f)->union_blocks, 16);
  // Without picks the ceiling is left out.
  Request plain = request_of("causal", 256);
  const PlanContract without = contract_of(plain);
  plain.ceilings.max_union = 4;
  EXPECT_EQ(contract_of(plain).key, without.key);
  EXPECT_EQ(contract_of(plain).folded.back(),
            "max_union is given, no mask names picks: left out");
  plain.ceilings.max_union = -1;
  EXPECT_EQ(make_plan(plain, {}).error().message,
            "[request] max_union must be from 0 to 1099511627776, found -1");
}

TEST(Contract, RuntimeFactsStayOutOfTheKey) {
  Request r = request_of("causal & window(300, 0) & prefix", 1024);
  r.ceilings = {4096, 16};
  const std::vector<int32_t> prefix_a = {100};
  const std::vector<int32_t> prefix_b = {700};
  const std::vector<int32_t> count_a = {1024};
  const std::vector<int32_t> count_b = {800};
  const std::vector<int32_t> offset_a = {0};
  const std::vector<int32_t> offset_b = {-9};
  Facts a;
  a.prefix_lengths = prefix_a;
  a.valid_token_counts = count_a;
  a.q_offsets = offset_a;
  Facts b;
  b.prefix_lengths = prefix_b;
  b.valid_token_counts = count_b;
  b.q_offsets = offset_b;
  EXPECT_EQ(contract_of(r, a).key, contract_of(r, b).key);
  // Window bounds of one class have one key too.
  Request other = r;
  other.masks = {*parse_mask("prefix & window(511, 0) & causal")};
  EXPECT_EQ(contract_of(r, a).key, contract_of(other, a).key);
  EXPECT_EQ(contract_of(other, a).window_bounds,
            (std::vector<int64_t>{511, 0}));
  // Slot counts become token counts before a consumer reads them.
  const std::vector<int32_t> slots = {16};
  Facts c = a;
  c.valid_token_counts.reset();
  c.valid_slot_counts = slots;
  c.base_block_tokens = 64;
  EXPECT_EQ(contract_of(r, a).key, contract_of(r, c).key);
}

TEST(Contract, EveryStaticTermChangesTheKey) {
  std::vector<Request> requests;
  auto add = [&](auto change, const char* mask = "causal") {
    Request r = request_of(mask, 1024);
    change(r);
    requests.push_back(r);
  };
  add([](Request&) {});
  add([](Request& r) { r.q_len = 700; });
  add([](Request& r) { r.kv_len = 1400; });
  add([](Request& r) { r.batch = 2; });
  add([](Request& r) { r.tile.q = 32; });
  add([](Request& r) { r.tile.kv = 32; });
  add([](Request& r) { r.logical_block = {32, 64}; });
  add([](Request& r) { r.ceilings.max_steps = 9999; });
  add([](Request& r) { r.ceilings.max_width = 999; });
  add([](Request& r) { r.masks.push_back(r.masks[0]); });
  for (const char* mask :
       {"full", "window(0, 0)", "window(1, 0)", "window(3, 0)", "window(4, -1)",
        "window(5, -1)", "chunk(64)", "chunk(65)", "sink(2)", "sink(3)",
        "causal | sink(2)", "!causal"}) {
    add([](Request&) {}, mask);
  }
  std::vector<std::string> keys;
  for (const Request& r : requests) keys.push_back(contract_of(r).key);
  const std::vector<int32_t> ids(1024, 7);
  const std::vector<int32_t> counts = {1024};
  Facts with_ids;
  with_ids.doc_ids = ids;
  Facts with_counts;
  with_counts.valid_token_counts = counts;
  keys.push_back(contract_of(request_of("causal", 1024), with_counts).key);
  keys.push_back(
      contract_of(request_of("full | documents", 1024), with_ids).key);
  keys.push_back(
      contract_of(request_of("full | segments", 1024), with_ids).key);
  for (size_t i = 0; i < keys.size(); ++i) {
    for (size_t j = 0; j < i; ++j) EXPECT_NE(keys[i], keys[j]) << i << " " << j;
  }
  // A fact that no mask names is left out, and the contract says so.
  const PlanContract folded = contract_of(request_of("causal", 1024), with_ids);
  EXPECT_EQ(folded.key, keys[0]);
  EXPECT_EQ(folded.folded[0], "doc_ids is given, no mask names it: left out");
}

TEST(Contract, OrderOfBoundsFollowsTheKey) {
  // Both are window(128, 0) | window(128, 128) in the key.
  const PlanContract a =
      contract_of(request_of("window(100, 99) | window(127, 0)", 512));
  const PlanContract b =
      contract_of(request_of("window(99, 0) | window(70, 127)", 512));
  EXPECT_EQ(a.window_bounds, (std::vector<int64_t>{127, 0, 100, 99}));
  EXPECT_EQ(b.window_bounds, (std::vector<int64_t>{99, 0, 70, 127}));
}

TEST(Warnings, AreOfThePlanAndOfFactsInVain) {
  const std::vector<int32_t> ids(64, 0), counts = {0};
  Facts f;
  f.doc_ids = ids;
  f.valid_token_counts = counts;
  const auto batch = BorrowedBatch::make(request_of("causal", 64), f);
  ASSERT_TRUE(batch) << batch.error().message;
  const auto warnings = make_warnings(*batch);
  ASSERT_EQ(warnings.size(), batch->plan().warnings.size() + 1);
  EXPECT_EQ(warnings.back(),
            "[plan] a fact should be named by a mask, found doc_ids unused");
}

TEST(PlanDigest, DiffersWhereAPlanDiffers) {
  auto plan = *make_plan(request_of("causal", 512), {});
  const std::string digest = plan_digest(plan);
  EXPECT_EQ(digest.size(), 32u);
  EXPECT_EQ(plan_digest(*make_plan(request_of("causal", 512), {})), digest);
  Plan other = plan;
  other.forward.entries[3].word ^= 3;
  EXPECT_NE(plan_digest(other), digest);
  other = plan;
  other.q_len = 511;
  EXPECT_NE(plan_digest(other), digest);
  other = plan;
  std::swap(other.forward, other.transposed);
  EXPECT_NE(plan_digest(other), digest);
}

// A ceiling contract equals that of every batch under the same ceilings.
TEST(Contract, CeilingsGiveTheContractOfEveryBatchUnderThem) {
  Request r = request_of("causal & window(100, 0) & documents", 1000);
  r.ceilings = {256, 16};
  Facts present;
  present.doc_ids = Ints{};
  auto ceiling = make_ceiling_contract(r, present);
  ASSERT_TRUE(ceiling.ok()) << ceiling.error().message;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const auto ids = packed(seed, 1000, 40 + static_cast<int64_t>(seed) * 30);
    Facts f;
    f.doc_ids = Ints(ids);
    EXPECT_EQ(contract_of(r, f).key, ceiling->key);
    EXPECT_EQ(contract_of(r, f).window_bounds, ceiling->window_bounds);
  }
  // Without ceilings the lengths bound the sizes: 16 rows and columns.
  r.ceilings = {};
  auto open = make_ceiling_contract(r, present);
  ASSERT_TRUE(open.ok());
  r.ceilings = {256, 16};
  EXPECT_EQ(open->text, make_ceiling_contract(r, present)->text);
  // The presence of facts is a term, not their values.
  EXPECT_NE(make_ceiling_contract(r, {})->key, ceiling->key);
  r.q_len = 0;
  auto bad = make_ceiling_contract(r, present);
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.error().message,
            "[request] q_len must be from 1 to 1073741824, found 0");
}

TEST(Contract, AKernelKeyHoldsEveryTerm) {
  const PlanContract plan = contract_of(request_of("causal", 512));
  KernelChoice choice;
  choice.lane = "mosaic";
  choice.target = "v6e:1x1";
  choice.direction = "forward";
  choice.dtype = "bf16";
  choice.shape.head_dim = choice.shape.v_head_dim = 64;
  const KernelContract base = make_kernel_contract(plan, choice);
  const auto text_with = [](const std::string& terms) {
    return "{\"direction\":\"forward\",\"dtype\":\"bf16\",\"head_dim\":64,"
           "\"heads\":1,\"kv_heads\":1,\"lane\":\"mosaic\",\"layout\":"
           "\"bhsd\",\"parameters\":{},\"plan\":" +
           terms +
           ",\"scale\":0.125,\"sharding\":\"none\",\"softcap\":0.0,"
           "\"target\":\"v6e:1x1\",\"v_head_dim\":64,\"version\":0}";
  };
  // The plan's terms without the widths: this kernel walks a list.
  const std::string widths = ",\"width\":8,\"width_transposed\":8}";
  ASSERT_TRUE(plan.text.ends_with(widths)) << plan.text;
  EXPECT_EQ(
      base.text,
      text_with(plan.text.substr(0, plan.text.size() - widths.size()) + "}"));
  KernelChoice wide = choice;
  wide.reads_rectangle = true;
  EXPECT_EQ(make_kernel_contract(plan, wide).text, text_with(plan.text));
  const std::vector<std::function<void(KernelChoice&)>> changes = {
      [](KernelChoice& c) { c.lane = "cpu"; },
      [](KernelChoice& c) { c.target = "v6e:2x2"; },
      [](KernelChoice& c) { c.direction = "backward"; },
      [](KernelChoice& c) { c.dtype = "f32"; },
      [](KernelChoice& c) { c.layout = "bshd"; },
      [](KernelChoice& c) { c.sharding = "heads"; },
      [](KernelChoice& c) { c.shape.heads = 2; },
      [](KernelChoice& c) { c.shape.kv_heads = 2; },
      [](KernelChoice& c) { c.shape.head_dim = 128; },
      [](KernelChoice& c) { c.shape.v_head_dim = 128; },
      [](KernelChoice& c) { c.shape.scale = 0.5; },
      [](KernelChoice& c) { c.shape.softcap = 30; },
      [](KernelChoice& c) { c.reads_rectangle = true; },
      [](KernelChoice& c) { c.parameters["tiles_per_pass"] = 2; },
      [](KernelChoice& c) { c.lowering_reason = "few tokens"; },
      [](KernelChoice& c) { c.lowering_reason = "short rows"; },
  };
  std::set<std::string> keys = {base.key};
  for (size_t i = 0; i < changes.size(); ++i) {
    KernelChoice changed = choice;
    changes[i](changed);
    EXPECT_TRUE(keys.insert(make_kernel_contract(plan, changed).key).second)
        << i;
  }
  // The contract holds the value of the default scale, so an explicit equal
  // scale changes nothing.
  KernelChoice said = choice;
  said.shape.scale = 0.125;
  EXPECT_EQ(make_kernel_contract(plan, said).key, base.key);
}

// Plans with different row widths and the same number of steps have two plan
// contracts, but one kernel contract unless the kernel reads the rectangle.
TEST(Contract, TheGridWidthIsATermOfKernelsThatReadIt) {
  const Request r = request_of("causal & documents", 512);
  std::vector<PlanContract> plans;
  // 4 documents of 2 tiles have 4 x 3 steps; of 3, 2, 1, 1, 1: 6 + 3 + 3.
  for (const auto& tiles : {std::vector{2, 2, 2, 2}, {3, 2, 1, 1, 1}}) {
    std::vector<int32_t> ids;
    for (size_t d = 0; d < tiles.size(); ++d) {
      ids.insert(ids.end(), 64 * static_cast<size_t>(tiles[d]),
                 static_cast<int32_t>(d));
    }
    Facts f;
    f.doc_ids = ids;
    plans.push_back(contract_of(r, f));
    EXPECT_EQ(plans.back().steps, 12);
  }
  EXPECT_NE(plans[0].key, plans[1].key);
  KernelChoice choice;
  choice.lane = "xla";
  EXPECT_EQ(make_kernel_contract(plans[0], choice).key,
            make_kernel_contract(plans[1], choice).key);
  choice.reads_rectangle = true;
  EXPECT_NE(make_kernel_contract(plans[0], choice).key,
            make_kernel_contract(plans[1], choice).key);
}

}  // namespace
}  // namespace tessera::plan
