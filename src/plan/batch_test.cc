// plan/batch_test.cc: a plan is never read with another batch's facts.
#include "tessera/batch.h"

#include <gtest/gtest.h>

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lanes/mosaic/rule.h"
#include "lanes/reference/judge.h"
#include "plan/make_plan.h"
#include "plan/stoppable.h"
#include "tessera/fit.h"
#include "tessera/layouts.h"
#include "tessera/mosaic.h"
#include "tessera/session.h"
#include "tessera/shard.h"

namespace tessera::plan {
namespace {

Request packed(int64_t tokens = 64) {
  Request r;
  r.masks = {*parse_mask("causal & documents")};
  r.q_len = r.kv_len = tokens;
  r.tile = {16, 16};
  r.logical_block = {8, 8};
  return r;
}

std::vector<int32_t> ids_of(int64_t tokens, int64_t length) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < tokens; ++i) {
    ids.push_back(static_cast<int32_t>(i / length));
  }
  return ids;
}

OwnedFacts owned(std::vector<int32_t> ids) {
  OwnedFacts f;
  f.doc_ids = std::move(ids);
  return f;
}

// A batch gives no way to replace its plan or its facts.
static_assert(
    std::is_const_v<
        std::remove_reference_t<decltype(std::declval<OwnedBatch>().plan())>>);
static_assert(!std::is_constructible_v<OwnedBatch, Request, OwnedFacts, Plan>);
static_assert(!std::is_default_constructible_v<Batch>);

// A function that reads a batch: its name, and its error or "".
struct Reader {
  const char* where;
  std::function<std::string(const Batch&)> error;
};
template <class T>
std::string text_of(const Result<T>& r) {
  return r ? "" : r.error().message;
}

const AttentionCall& call_of_readers() {
  static const AttentionCall call = {.shape = {2, 1, 64, 64, {}, 0}};
  return call;
}
Result<Shards> shards_of(const Batch& batch) {
  ShardOptions options;
  options.shape = call_of_readers().shape;
  options.dtype = call_of_readers().dtype;
  return make_shards(batch, *parse_mesh("seq=2"), options);
}
const Shards& shards_of_readers() {
  static const Shards shards =
      *shards_of(*OwnedBatch::make(packed(), owned(ids_of(64, 20))));
  return shards;
}
const Session& session_of_readers() {
  static const Session session = [] {
    SessionOptions options;
    options.lane = LaneId::cpu;
    return *Session::open(options);
  }();
  return session;
}

std::string mosaic_error(const Batch& b) {
  MosaicKernel kernel;
  kernel.q_len = kernel.kv_len = 64;
  kernel.tile = {16, 16};
  kernel.steps = 64;
  kernel.mask = mosaic::mask_text(packed());
  return text_of(make_mosaic_arrays(b, kernel));
}
std::string next_error(const Batch& b) {
  const auto first = OwnedBatch::make(packed(), owned(ids_of(64, 20)));
  auto ready = session_of_readers().prepare(*first, call_of_readers());
  return ready ? text_of(ready->next(b)) : ready.error().message;
}
std::string warm_error(const Batch& b) {
  WarmList list;
  return text_of(add_call(list, session_of_readers(), b, call_of_readers()));
}

// The judge's error for arrays of zeros, which both passes only read.
std::string judge_error(const Batch& b, bool backward) {
  const AttentionShape& shape = call_of_readers().shape;
  std::vector<float> zeros(static_cast<size_t>(64 * shape.heads * 64));
  const auto view = [&](int64_t heads) {
    return MutableTensorView::bhsd(zeros.data(), Dtype::f32, 1, heads, 64, 64);
  };
  const MutableTensorView queries = view(shape.heads);
  const MutableTensorView keys = view(shape.kv_heads);
  const ForwardTensors t{
      as_input(queries), as_input(keys), as_input(keys), {}, queries, {}};
  if (!backward) return text_of(reference::judge_forward(b, shape, t));
  const Gradients g{as_input(queries), {}, queries, keys, keys, {}};
  return text_of(reference::judge_backward(b, shape, t, g));
}

std::vector<Reader> layout_readers() {
  return {
      {"steps", [](const Batch& b) { return text_of(pack_steps(b, false)); }},
      {"flex", [](const Batch& b) { return text_of(make_flex(b)); }},
      {"bitmaps", [](const Batch& b) { return text_of(make_bitmaps(b)); }},
      {"mask_blocks",
       [](const Batch& b) { return text_of(make_mask_blocks(b, false, 4)); }},
      {"splash", [](const Batch& b) { return text_of(make_splash(b, 0, {})); }},
      {"splash",
       [](const Batch& b) { return text_of(make_splash_run(b, 0, {})); }},
      {"splash",
       [](const Batch& b) { return text_of(make_tokamax_run(b, 0, {})); }},
      {"topk", [](const Batch& b) { return text_of(count_key_reads(b)); }},
  };
}
std::vector<Reader> shard_readers() {
  return {
      {"shard", [](const Batch& b) { return text_of(shards_of(b)); }},
      {"shard",
       [](const Batch& b) {
         return text_of(pack_shard(b, shards_of_readers(), 0, false));
       }},
      {"contract",
       [](const Batch& b) {
         return text_of(
             program_text(b, shards_of_readers(), call_of_readers(), false));
       }},
      {"contract",
       [](const Batch& b) {
         return text_of(shard_program_arrays(b, shards_of_readers(),
                                             call_of_readers(), false));
       }},
      {"contract",
       [](const Batch& b) {
         return text_of(
             shard_integers(b, shards_of_readers(), call_of_readers()));
       }},
  };
}
std::vector<Reader> run_readers() {
  return {
      {"mosaic", mosaic_error},
      {"contract",
       [](const Batch& b) {
         return text_of(fit_call(b, call_of_readers(), LaneId::xla, "v6e"));
       }},
      {"run",
       [](const Batch& b) {
         return text_of(session_of_readers().choose(b, call_of_readers()));
       }},
      {"run",
       [](const Batch& b) {
         return text_of(session_of_readers().prepare(b, call_of_readers()));
       }},
      {"run", next_error},
      {"warm", warm_error},
      {"judge", [](const Batch& b) { return judge_error(b, false); }},
      {"judge", [](const Batch& b) { return judge_error(b, true); }},
  };
}
// Every public function of a batch that may fail, and the judge. Functions of
// picks and of TPU kernels of a mesh have their own tests.
const std::vector<Reader>& readers() {
  static const std::vector<Reader> all = [] {
    std::vector<Reader> out = {
        {"contract", [](const Batch& b) { return text_of(make_contract(b)); }},
        {"statistics",
         [](const Batch& b) { return text_of(make_statistics(b)); }},
        {"plan file", [](const Batch& b) { return text_of(encode_plan(b)); }},
    };
    for (auto* some : {layout_readers, shard_readers, run_readers}) {
      for (Reader& r : some()) out.push_back(std::move(r));
    }
    return out;
  }();
  return all;
}

std::string changed(const std::string& where) {
  return "[" + where +
         "] facts must be as they were planned, found others (remake the batch "
         "when its facts change)";
}

TEST(Batch, FactsThatChangeUnderTheirPlanAreRefusedByAllThatReadThem) {
  std::vector<int32_t> ids = ids_of(64, 20);
  Facts facts;
  facts.doc_ids = ids;
  auto batch = BorrowedBatch::make(packed(), facts);
  ASSERT_TRUE(batch.ok()) << batch.error().message;
  for (const Reader& r : readers()) EXPECT_EQ(r.error(*batch), "") << r.where;
  ids[63] = 9;
  for (const Reader& r : readers()) {
    EXPECT_EQ(r.error(*batch), changed(r.where));
  }
  // Copies give the same errors; after a remake the handle has a batch.
  const Batch copy = *batch;
  ASSERT_TRUE(batch->remake(facts).ok());
  for (const Reader& r : readers()) EXPECT_EQ(r.error(*batch), "") << r.where;
  EXPECT_NE(readers()[0].error(copy), "");
  ids[63] = 3;
  for (const Reader& r : readers()) EXPECT_EQ(r.error(copy), "") << r.where;
}

TEST(Batch, PicksThatChangeUnderTheirPlanAreRefused) {
  Request request = packed();
  request.masks = {*parse_mask("causal & blocks(16)")};
  std::vector<int32_t> picks(64, 0);
  Facts facts;
  facts.picks = Picks{picks, 1, 1};
  const auto batch = BorrowedBatch::make(request, facts);
  ASSERT_TRUE(batch.ok()) << batch.error().message;
  EXPECT_EQ(text_of(make_topk(*batch)), "");
  picks[63] = 1;
  EXPECT_EQ(text_of(make_topk(*batch)), changed("topk"));
}

TEST(Batch, FactsThatChangeAreRefusedByTheKernelsOfAMesh) {
  Request request = packed(1024);
  request.tile = request.logical_block = {256, 256};
  std::vector<int32_t> ids = ids_of(1024, 300);
  Facts facts;
  facts.doc_ids = ids;
  const auto batch = BorrowedBatch::make(request, facts);
  ASSERT_TRUE(batch.ok()) << batch.error().message;
  const AttentionCall call = {.shape = {2, 1, 128, 128, {}, 0},
                              .dtype = Dtype::bf16};
  ShardOptions options;
  options.shape = call.shape;
  const auto shards = make_shards(*batch, *parse_mesh("seq=2"), options);
  ASSERT_TRUE(shards.ok()) << shards.error().message;
  const auto kernel = make_mosaic_shards(*batch, *shards, call, "v6e:2x2");
  ASSERT_TRUE(kernel.ok()) << kernel.error().message;
  EXPECT_EQ(text_of(make_mosaic_shard_arrays(*batch, *shards, *kernel)), "");
  ids[1023] = 9;
  EXPECT_EQ(text_of(make_mosaic_shards(*batch, *shards, call, "v6e:2x2")),
            changed("mosaic"));
  EXPECT_EQ(text_of(make_mosaic_shard_arrays(*batch, *shards, *kernel)),
            changed("mosaic"));
}

// Every array of the facts is compared, not only the ids.
TEST(Batch, EveryBorrowedArrayIsLookedAt) {
  Request request;
  request.masks = {*parse_mask(
      "prefix | documents | blocks(16) | tree | same(a) | same(h)")};
  request.batch = 2;
  request.q_len = request.kv_len = 32;
  request.tile = {16, 16};
  std::vector<int32_t> ids(64, 0), q_ids(64, 0),
      tokens = {32, 30}, slots = {2, 2}, prefix = {4, 5}, offsets = {0, 0},
      picks(64, 0), enter(64), leave(64), first_same(64, 0), last_same(64, 0);
  for (size_t i = 0; i < 64; ++i) {
    enter[i] = static_cast<int32_t>(i % 32);
    leave[i] = enter[i] + 1;
  }
  Facts f;
  f.doc_ids = ids;
  f.q_doc_ids = q_ids;
  f.valid_token_counts = tokens;
  f.valid_slot_counts = slots;
  f.base_block_tokens = 16;
  f.prefix_lengths = prefix;
  f.q_offsets = offsets;
  f.picks = Picks{picks, 1, 1};
  f.tree_enter = enter;
  f.tree_leave = leave;
  f.same_ids.front() = first_same;
  f.same_ids.back() = last_same;
  const auto batch = BorrowedBatch::make(request, f);
  ASSERT_TRUE(batch.ok()) << batch.error().message;
  for (std::vector<int32_t>* array :
       {&ids, &q_ids, &tokens, &slots, &prefix, &offsets, &picks, &enter,
        &leave, &first_same, &last_same}) {
    EXPECT_TRUE(make_contract(*batch).ok());
    array->back() += 1;
    EXPECT_FALSE(make_contract(*batch).ok());
    array->back() -= 1;
  }
}

TEST(Batch, OwnedFactsMayGo) {
  std::vector<int32_t> ids = ids_of(64, 20);
  Facts facts;
  facts.doc_ids = ids;
  const auto batch = OwnedBatch::copy(packed(), facts);
  ASSERT_TRUE(batch.ok());
  ids.assign(ids.size(), 7);
  EXPECT_EQ(batch->plan(), *make_plan(packed(), owned(ids_of(64, 20)).view()));
  EXPECT_EQ(batch->facts().doc_ids->back(), 3);
  for (const Reader& r : readers()) EXPECT_EQ(r.error(*batch), "") << r.where;
}

TEST(Batch, ACopyKeepsTheBatchThatItNames) {
  auto batch = OwnedBatch::make(packed(), owned(ids_of(64, 20)));
  ASSERT_TRUE(batch.ok());
  const Batch before = *batch;
  ASSERT_TRUE(batch->remake(owned(ids_of(64, 7))).ok());
  EXPECT_EQ(before.plan(), *make_plan(packed(), owned(ids_of(64, 20)).view()));
  EXPECT_EQ(batch->plan(), *make_plan(packed(), owned(ids_of(64, 7)).view()));
}

TEST(Batch, WithoutCopiesARemakeServesTheSameMemory) {
  auto batch = OwnedBatch::make(packed(), owned(ids_of(64, 20)));
  ASSERT_TRUE(batch.ok());
  const Plan* const at = &batch->plan();
  const Entry* const entries = at->forward.entries.data();
  ASSERT_TRUE(batch->remake(owned(ids_of(64, 20))).ok());
  EXPECT_EQ(&batch->plan(), at);
  EXPECT_EQ(batch->plan().forward.entries.data(), entries);
}

// Models a loop that still holds a batch while it makes the next.
TEST(Batch, ALoopThatHoldsOneBatchTakesTheMemoryOfTwo) {
  auto batch = OwnedBatch::make(packed(), owned(ids_of(64, 20)));
  ASSERT_TRUE(batch.ok());
  std::optional<Batch> held = *batch;
  std::set<const Plan*> plans = {&batch->plan()};
  for (int64_t length = 1; length < 20; ++length) {
    ASSERT_TRUE(batch->remake(owned(ids_of(64, length))).ok());
    EXPECT_NE(&batch->plan(), &held->plan());
    EXPECT_EQ(batch->plan(),
              *make_plan(packed(), owned(ids_of(64, length)).view()));
    held = *batch;
    plans.insert(&batch->plan());
  }
  EXPECT_EQ(plans.size(), 2u);
}

TEST(Batch, AfterARemakeThatFailedThereIsNoBatch) {
  auto batch = OwnedBatch::make(packed(), owned(ids_of(64, 20)));
  ASSERT_TRUE(batch.ok());
  EXPECT_FALSE(batch->remake(owned(ids_of(63, 20))).ok());
  for (const Reader& r : readers()) {
    EXPECT_EQ(r.error(*batch), std::string("[") + r.where +
                                   "] a batch must be there, found a remake "
                                   "that failed");
  }
  EXPECT_TRUE(batch->remake(owned(ids_of(64, 20))).ok());
  for (const Reader& r : readers()) EXPECT_EQ(r.error(*batch), "") << r.where;
}

// The failed remake uses a new state, in which no mask was compiled yet.
TEST(Batch, ARemakeThatFailedBesideAHeldBatchCanBeFollowedByAnother) {
  auto batch = OwnedBatch::make(packed(), owned(ids_of(64, 20)));
  ASSERT_TRUE(batch.ok());
  const Batch held = *batch;
  EXPECT_FALSE(batch->remake(owned(ids_of(63, 20))).ok());
  ASSERT_TRUE(batch->remake(owned(ids_of(64, 7))).ok());
  EXPECT_EQ(batch->plan(), *make_plan(packed(), owned(ids_of(64, 7)).view()));

  const OwnedFacts good = owned(ids_of(64, 7)), bad = owned(ids_of(63, 7));
  auto borrowed = BorrowedBatch::make(packed(), good.view());
  ASSERT_TRUE(borrowed.ok());
  const Batch held_too = *borrowed;
  EXPECT_FALSE(borrowed->remake(bad.view()).ok());
  ASSERT_TRUE(borrowed->remake(good.view()).ok());
  EXPECT_EQ(borrowed->plan(), held_too.plan());
  EXPECT_EQ(held.plan(), *make_plan(packed(), owned(ids_of(64, 20)).view()));
}

TEST(Batch, PlanningEndsWhereTheCallerSaysSo) {
  Request request = packed(64 * 16 * 16);
  int asked = 0;
  const auto stopped = [&] { return ++asked == 3; };
  const auto made =
      make_batch(request, owned(ids_of(request.q_len, 700)), stopped);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().kind, ErrorKind::stopped);
  EXPECT_EQ(made.error().message,
            "[plan] a call must run to its end to give its outputs, found it "
            "stopped after 191 of 1024 tile rows");
  EXPECT_EQ(asked, 3);
  const auto whole = make_batch(request, owned(ids_of(request.q_len, 700)),
                                [] { return false; });
  ASSERT_TRUE(whole.ok());
  EXPECT_EQ(whole->plan(),
            *make_plan(request, owned(ids_of(request.q_len, 700)).view()));
}

// One handle is remade with hundreds of different batches; no data of one batch
// remains in the next.
TEST(Batch, RemadeEqualsFresh) {
  std::vector<int32_t> ids;
  Request request = packed(200);
  request.masks = {*parse_mask("causal & documents | sink(4)"),
                   *parse_mask("window(30, 0) & documents")};
  auto borrowed = [&](const Facts& f) {
    return BorrowedBatch::make(request, f);
  };
  ids = ids_of(200, 200);
  Facts facts;
  facts.doc_ids = ids;
  auto batch = borrowed(facts);
  ASSERT_TRUE(batch.ok());
  for (int64_t length = 1; length < 200; length += 3) {
    std::vector<int32_t> next = ids_of(200, length);
    if (length % 2 == 0) next.back() = -1;
    facts.doc_ids = next;
    ASSERT_TRUE(batch->remake(facts).ok());
    ASSERT_EQ(batch->plan(), *make_plan(request, facts)) << length;
    ids = std::move(next);
    facts.doc_ids = ids;
  }
}

}  // namespace
}  // namespace tessera::plan
