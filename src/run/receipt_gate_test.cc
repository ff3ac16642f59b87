// run/receipt_gate_test.cc: tests that a receipt has the gate's rows that
// decided its choice, and that the same choice follows from these rows alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "run/lane_rules.h"
#include "run/receipt_parts.h"
#include "run/verify.h"
#include "tessera/dispatch.h"

namespace tessera::run {
namespace {

using Random = std::mt19937_64;

int64_t below(Random& random, int64_t n) {
  return std::uniform_int_distribution<int64_t>(0, n - 1)(random);
}

template <class T>
T one_of(Random& random, std::initializer_list<T> all) {
  return all.begin()[below(random, static_cast<int64_t>(all.size()))];
}

struct Case {
  RequestFeatures f;
  PlanFacts plan;
  Machine m;
  GateTable gate;
  int64_t wrong_in = 4;  // one in so many rows is wrong
};

Machine random_machine(Random& random) {
  const MachinePlugin cpu = {"xla_cpu_pjrt", "cpu", 4};
  const MachinePlugin tpu = {"libtpu", "tpu", 4, "v6e"};
  const MachinePlugin gpu = {"/opt/cuda.so", "cuda", 1};
  return {"A CPU",
          8,
          {Isa::portable},
          true,
          true,
          one_of<std::vector<MachinePlugin>>(
              random, {{}, {cpu}, {tpu}, {cpu, tpu}, {tpu}, {gpu}})};
}

RequestFeatures random_features(Random& random) {
  Request request;
  request.masks = {*parse_mask(one_of(
      random, {"causal", "causal & documents", "window(99, 0)", "full"}))};
  request.q_len = request.kv_len = one_of<int64_t>(random, {512, 4096});
  CallFeatures call;
  call.dtype = one_of(random, {Dtype::bf16, Dtype::f32, Dtype::f16});
  call.backward = below(random, 4) == 0;
  call.artifact_platforms = {"tpu", "cpu", "cuda"};
  call.bridge_artifact = below(random, 4) == 0;
  const AttentionShape shape = {8, 8, 128, 128, 0.125, 0};
  RequestFeatures f = features_of(request, {}, shape, call);
  if (!call.bridge_artifact && below(random, 2) == 0) {
    f.call.splash = {call.dtype, shape, f.q_len, f.kv_len, f.tile.q,
                     f.tile.kv,  1,     64,      64};
  }
  return f;
}

// A mask of the class, without a softcap.
const char* mask_of(RequestClass c) {
  switch (c) {
    case RequestClass::sparse_blocks:
      return "causal & documents";
    case RequestClass::custom:
      return "window(99, 0)";
    case RequestClass::plain_causal:
      return "causal";
    case RequestClass::other:
      break;
  }
  return "full";
}

// A row without a verdict, which set_verdicts() fills. Most rows are about this
// request.
GateRow random_row(Random& random, const Case& c) {
  GateRow row;
  row.lane = one_of(
      random, {LaneId::cpu, LaneId::mosaic, LaneId::mosaic, LaneId::splash});
  row.kernel = std::string(to_string(row.lane)) +
               one_of(random, {"/forward", "/backward", "/decode"});
  row.request_class =
      below(random, 4) == 0 ? RequestClass::other : c.f.request_class;
  row.mask = mask_of(row.request_class);
  row.backward = below(random, 4) == 0 ? !c.f.call.backward : c.f.call.backward;
  row.dtype = c.f.call.dtype;
  row.q_len = row.kv_len = below(random, 3) == 0 ? 2048 : c.f.q_len;
  row.shape = c.f.shape;
  if (row.lane != LaneId::cpu) row.tile = {512, 512};
  // The plan's density class; half of the rows are denser than the plan.
  const double density = c.plan.density();
  const double denser = density > 0.5 ? std::max(density, 0.9) : 0.5;
  const size_t number = c.gate.rows.size();
  row.density = number % 2 == 0 ? denser : density;
  constexpr XlaMethod kPlain[] = {XlaMethod::chunked, XlaMethod::dense,
                                  XlaMethod::worklist};
  row.plain = kPlain[number % 3];
  row.error = below(random, c.wrong_in) == 0 ? 2 : 0.5;
  row.judgement = *row.error > 1 ? GateJudgement::wrong : GateJudgement::passed;
  row.shape_per_step = below(random, 4 * c.wrong_in) == 0;
  const double kernel = 4, plain = one_of(random, {1.0, 2.0, 4.0, 16.0});
  const bool timed = row.judgement == GateJudgement::passed;
  if (timed) row.factor = plain / kernel;
  if (row.lane == LaneId::cpu || below(random, 2) == 0) {
    row.machine = below(random, 6) == 0 ? "another" : c.m.key();
    if (timed) row.kernel_ms = kernel, row.plain_ms = plain;
    return row;
  }
  row.basis = GateBasis::predicted;
  row.generation = below(random, 6) == 0 ? "v5e" : "v6e";
  if (timed) {
    row.kernel_cycles = kernel, row.plain_cycles = plain;
    row.error_bar = 1.28;
  }
  return row;
}

Case random_case(Random& random) {
  Case c;
  c.f = random_features(random);
  c.plan = {100, one_of<int64_t>(random, {100, 55, 30}), 8};
  c.m = random_machine(random);
  c.wrong_in = one_of<int64_t>(random, {3, 50});
  for (int64_t rows = below(random, 12); rows > 0; --rows) {
    c.gate.rows.push_back(random_row(random, c));
  }
  set_verdicts(c.gate);
  return c;
}

Choice chosen(const Case& c, const GateTable& gate) {
  const auto choice = choose(c.f, c.plan, c.m, gate);
  return choice ? *choice : no_lane(c.f, c.plan, c.m, gate);
}

// The receipt of a run in which the reference stepped in for the chosen lane,
// as it can for any.
receipt::Receipt receipt_of(const Case& c, const Choice& choice) {
  receipt::Receipt r;
  r.version = "0.1.0";
  r.lane = {"auto",       "default",   std::string(to_string(choice.lane)),
            "reference",  "reference", "executed",
            {"reference"}};
  r.fallback = "so";
  r.choice = receipt_choice(choice);
  r.machine = receipt_machine(c.m);
  r.isa = "portable";
  r.threads = 1;
  r.device = c.m.cpu;
  r.request.masks = {"causal"};
  r.request.batch = "1";
  r.request.q_len = r.request.kv_len = "8";
  r.request.tile = "16x32";
  r.request.docs = "lengths:8";
  r.shape = {c.f.shape, 0.125, "f32", "bhsd", false};
  r.facts_digest = r.contract = r.plan_digest = r.output_digest =
      std::string(32, 'a');
  return r;
}

std::vector<std::string> found_wrong(const receipt::Receipt& r, const Case& c) {
  const auto claim = receipt::parse_receipt(receipt::receipt_json(r));
  if (!claim) return {claim.error().message};
  const auto verdict = verify_receipt(
      *claim, [&](const receipt::Receipt& claimed) -> Result<SecondRun> {
        return SecondRun{claimed, SecondRun::Asked{c.f, c.plan}};
      });
  if (!verdict) return {verdict.error().message};
  std::vector<std::string> out = verdict->contradictions;
  for (const ReceiptDifference& d : verdict->wrong) {
    out.push_back(d.field + ": " + d.a + ", not " + d.b);
  }
  return out;
}

// Whether the choice, and no other field of the receipt, is found wrong.
bool finds_choice(const receipt::Receipt& r, const Case& c) {
  const std::vector<std::string> wrong = found_wrong(r, c);
  return !wrong.empty() && std::ranges::all_of(wrong, [](const auto& line) {
    return line.starts_with("choice.") || line.starts_with("lane.chosen");
  });
}

bool is_drop(const GateRow& row) { return row.verdict == GateVerdict::drop; }

bool keeps_out(const GateRow& row, const Case& c) {
  return bars(row, row.lane, c.f, c.m);
}

TEST(ReceiptGate, AChoiceFollowsFromItsRowsAlone) {
  Random random(11);
  int spoken = 0, several = 0, overruled = 0, denials = 0, none = 0;
  int listed = 0;  // took the worklist, not the row's fastest method
  for (int number = 0; number < 2000; ++number) {
    const Case c = random_case(random);
    GateTable table;
    if (!c.gate.rows.empty()) {
      const auto read = parse_gate(gate_json(c.gate));
      ASSERT_TRUE(read.ok()) << read.error().message;
      table = *read;
    }
    const Choice first = chosen(c, table);
    const std::vector<std::string> wrong = found_wrong(receipt_of(c, first), c);
    ASSERT_TRUE(wrong.empty()) << number << ": " << wrong[0];
    const auto barring = std::ranges::count_if(
        first.gate, [&](const GateRow& row) { return keeps_out(row, c); });
    const bool speaks = !first.gate.empty() && !keeps_out(first.gate[0], c);
    spoken += speaks && !first.rule;
    several += barring > 1;
    overruled += speaks && first.rule && barring > 0;
    denials += first.rule && std::ranges::any_of(first.gate, is_drop);
    none += first.reason == "no lane of the rules can run it";
    listed += first.reason.ends_with(" tiles the worklist");
  }
  EXPECT_GT(spoken, 100);
  EXPECT_GT(several, 50);
  EXPECT_GT(overruled, 10);
  EXPECT_GT(denials, 3);
  EXPECT_GT(none, 10);
  EXPECT_GT(listed, 0);
}

// A missing row, a row of another machine, or another order is found.
TEST(ReceiptGate, OtherRowsAreFound) {
  Random random(12);
  int looked_at = 0;
  for (int number = 0; number < 1000; ++number) {
    const Case c = random_case(random);
    const Choice first = chosen(c, c.gate);
    if (first.gate.size() < 2) continue;
    ++looked_at;
    const receipt::Receipt good = receipt_of(c, first);
    ASSERT_TRUE(found_wrong(good, c).empty()) << number;
    for (size_t i = 0; i < good.choice.gate.size(); ++i) {
      if (!keeps_out(good.choice.gate[i], c)) continue;
      receipt::Receipt less = good;
      less.choice.gate.erase(less.choice.gate.begin() +
                             static_cast<std::ptrdiff_t>(i));
      EXPECT_TRUE(finds_choice(less, c)) << number << ", " << i;
    }
    receipt::Receipt turned = good;
    std::swap(turned.choice.gate[0], turned.choice.gate[1]);
    EXPECT_TRUE(finds_choice(turned, c)) << number;
    receipt::Receipt more = good;
    more.choice.gate.push_back(good.choice.gate[0]);
    EXPECT_TRUE(finds_choice(more, c)) << number;
    GateRow& foreign = more.choice.gate.back();
    (foreign.machine.empty() ? foreign.generation : foreign.machine) =
        foreign.machine.empty() ? "v5e" : "another";
    EXPECT_TRUE(finds_choice(more, c)) << number;
  }
  EXPECT_GT(looked_at, 100);
}

// A row must be one that a table could have: its factor follows from its times,
// its class from its mask, and its verdict is not better than its own figures.
TEST(ReceiptGate, ARowThatNoTableMayHaveIsFound) {
  Random random(13);
  Case c = random_case(random);
  const auto loses = [&] {
    const std::vector<GateRow> rows = chosen(c, c.gate).gate;
    return !rows.empty() && is_drop(rows[0]);
  };
  while (!loses()) c = random_case(random);
  const auto expect_found = [&](const auto& change, const std::string& rule) {
    receipt::Receipt r = receipt_of(c, chosen(c, c.gate));
    change(r.choice.gate[0]);
    const std::vector<std::string> wrong = found_wrong(r, c);
    ASSERT_EQ(wrong.size(), 1U) << rule;
    EXPECT_TRUE(wrong[0].starts_with("choice.gate: [{")) << wrong[0];
    EXPECT_NE(wrong[0].find(", not '" + rule), std::string::npos) << wrong[0];
  };
  expect_found([](GateRow& row) { row.factor = 1e9; }, "[gate] factor must be");
  expect_found(
      [](GateRow& row) {
        row.mask = row.request_class == RequestClass::other ? "causal" : "full";
      },
      "[gate] class must be that of mask and softcap");
  expect_found([](GateRow& row) { row.mask = ""; },
               "[gate] mask must be a text, found an empty one");
  expect_found([](GateRow& row) { row.shape_per_step = true; },
               "[gate] a row that is out of the hot loop must have no better "
               "verdict, found delete");
  expect_found(
      [](GateRow& row) {
        row.error.reset();
        row.judgement = GateJudgement::unjudged;
      },
      "[gate] a row that is unjudged must have no better verdict, found "
      "delete");
}

TEST(ReceiptGate, HoldsNoMoreRowsThanAChoiceGoesBy) {
  Random random(14);
  Case c = random_case(random);
  c.gate.rows.assign(8, random_row(random, c));
  receipt::Receipt r = receipt_of(c, chosen(c, {}));
  r.choice.gate = c.gate.rows;
  EXPECT_EQ(found_wrong(r, c),
            std::vector<std::string>{"[receipt] choice.gate must hold at most "
                                     "7 items, found an array of 8"});
}

}  // namespace
}  // namespace tessera::run
