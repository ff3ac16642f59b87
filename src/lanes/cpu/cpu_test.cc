// lanes/cpu/cpu_test.cc: every kernel of this machine against the reference,
// within the bounds of lanes/reference/bound.cc: forward, backward and counts,
// over combinations of all that a call may vary, and where it is delicate.
#include "tessera/cpu.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "kernels/backward/backward.h"
#include "kernels/forward/forward.h"
#include "tessera/reference.h"
#include "tests/attention_case.h"

namespace tessera {
namespace {

using testing::AttentionArrays;
using testing::AttentionCase;
using testing::cpu_fault;
using testing::Layout;
using testing::RandomCase;
using testing::Wanted;
using testing::wanted;
using Random = std::mt19937_64;

int64_t uniform(Random& random, int64_t low, int64_t high) {
  return low +
         static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
}

// ---- Cases by their mask. ----

// Runs of ids with returns (A, B, A) and padding in the middle.
std::vector<int32_t> some_ids(Random& random, int64_t rows, int64_t length) {
  std::vector<int32_t> ids;
  for (int64_t row = 0; row < rows; ++row) {
    int64_t left = length;
    while (left > 0) {
      const int64_t run = std::min(left, uniform(random, 1, 40));
      ids.insert(ids.end(), static_cast<size_t>(run),
                 static_cast<int32_t>(uniform(random, -1, 3)));
      left -= run;
    }
  }
  return ids;
}

struct MaskKind {
  std::vector<const char*> masks;
  int64_t pick_heads = 0;  // 0: no picks
};

const std::vector<MaskKind>& mask_kinds() {
  static const std::vector<MaskKind> kinds = {
      {{"full"}},
      {{"causal"}},
      {{"causal & window(20, 0)"}},
      {{"window(3, 70)"}},
      {{"chunk(24)"}},
      {{"causal | prefix"}},
      {{"documents"}},
      {{"causal & documents"}},
      {{"causal & segments"}},
      {{"documents & (sink(3) | window(9, 0))"}},
      {{"causal & (sink(5) | window(12, 0))"}},
      {{"blocks(16)"}, 1},
      {{"causal & blocks(8)"}, 2},
      {{"!window(5, 5)"}},
      {{"causal & !chunk(10) | window(1, 1)"}},
      {{"(chunk(16) | !documents) & !window(2, 2)"}},
      {{"causal", "window(8, 8) & !causal"}},
      {{"!full"}},
  };
  return kinds;
}

bool names(const Expr& e, Atom atom) {
  if (e.atom == atom) return true;
  return std::any_of(e.children.begin(), e.children.end(),
                     [&](const Expr& child) { return names(child, atom); });
}

RandomCase case_of(const MaskKind& kind, int64_t batch, int64_t q_len,
                   int64_t kv_len, Tile tile, bool counts, uint64_t seed) {
  Random random(seed);
  RandomCase c;
  c.seed = seed;
  c.batch = batch, c.q_len = q_len, c.kv_len = kv_len, c.tile = tile;
  bool ids = false, runs = false, prefix = false;
  for (const char* text : kind.masks) {
    c.masks.push_back(*parse_expr(text));
    runs |= names(c.masks.back(), Atom::segments);
    ids |= runs || names(c.masks.back(), Atom::documents);
    prefix |= names(c.masks.back(), Atom::prefix);
  }
  const auto each_row = [&](int64_t low, int64_t high) {
    std::vector<int32_t> values;
    for (int64_t b = 0; b < batch; ++b) {
      values.push_back(static_cast<int32_t>(uniform(random, low, high)));
    }
    return values;
  };
  if (counts) {
    c.valid_tokens = each_row(0, kv_len);
    c.valid_tokens->back() = static_cast<int32_t>((kv_len * 3 + 3) / 4);
  }
  if (ids) {
    c.doc_ids = some_ids(random, batch, kv_len);
    if (runs && q_len > kv_len) {
      // Queries past the keys need no id where a count vetoes them.
      c.q_offsets = each_row(0, 0);
      if (!c.valid_tokens) c.valid_tokens = each_row(kv_len, kv_len);
    } else if (q_len > kv_len || (!runs && random() % 4 == 0)) {
      c.q_doc_ids = some_ids(random, batch, q_len);
    }
  } else if (random() % 3 == 0) {
    c.q_offsets = each_row(-5, kv_len);
  }
  if (prefix) c.prefix = each_row(0, kv_len);
  for (size_t b = 0; prefix && c.valid_tokens && b < c.prefix->size(); ++b) {
    (*c.prefix)[b] = std::min((*c.prefix)[b], (*c.valid_tokens)[b]);
  }
  if (kind.pick_heads > 0) {
    const int64_t block = 8 * (3 - kind.pick_heads);  // as the masks say
    c.pick_heads = kind.pick_heads;
    c.pick_k = 4;
    c.picks.emplace();
    for (int64_t i = 0; i < batch * c.pick_heads * q_len * c.pick_k; ++i) {
      c.picks->push_back(
          static_cast<int32_t>(uniform(random, -1, (kv_len - 1) / block)));
    }
  }
  return c;
}

// ---- Combinations: every pair of levels of two factors appears. ----

// Rows of levels, one for each factor of so many levels. Greedy: of some random
// rows that have a pair not seen yet, the one with the most.
std::vector<std::vector<int>> all_pairs(const std::vector<int>& levels,
                                        Random& random) {
  using Pair = std::array<int, 4>;
  std::set<Pair> open;
  const int factors = static_cast<int>(levels.size());
  const auto at = [](int i) { return static_cast<size_t>(i); };
  for (int i = 0; i < factors; ++i) {
    for (int j = 0; j < i; ++j) {
      for (int x = 0; x < levels[at(i)]; ++x) {
        for (int y = 0; y < levels[at(j)]; ++y) open.insert({i, j, x, y});
      }
    }
  }
  std::vector<std::vector<int>> rows;
  while (!open.empty()) {
    std::vector<int> best;
    size_t most = 0;
    for (int tries = 0; tries < 20; ++tries) {
      std::vector<int> row;
      for (const int n : levels) {
        row.push_back(static_cast<int>(uniform(random, 0, n - 1)));
      }
      auto first = open.begin();
      std::advance(first, uniform(random, 0,
                                  std::min<int64_t>(50, std::ssize(open) - 1)));
      row[at((*first)[0])] = (*first)[2];
      row[at((*first)[1])] = (*first)[3];
      size_t found = 0;
      for (int i = 0; i < factors; ++i) {
        for (int j = 0; j < i; ++j) {
          found += open.count({i, j, row[at(i)], row[at(j)]});
        }
      }
      if (found > most) best = row, most = found;
    }
    for (int i = 0; i < factors; ++i) {
      for (int j = 0; j < i; ++j) {
        open.erase({i, j, best[at(i)], best[at(j)]});
      }
    }
    rows.push_back(best);
  }
  return rows;
}

constexpr int64_t kLengths[] = {1,  2,   15,  16,  17,  31,  32,  33,  63, 64,
                                65, 127, 128, 129, 255, 256, 257, 300, 83};
constexpr Tile kTiles[] = {{8, 8},     {16, 16},   {48, 48},
                           {64, 64},   {128, 128}, {256, 256},
                           {384, 384}, {16, 128},  {256, 24}};
constexpr int64_t kDims[] = {8, 24, 40, 64, 72, 128, 256};
constexpr std::pair<int64_t, int64_t> kHeads[] = {
    {1, 1}, {2, 2}, {4, 2}, {2, 1}};
constexpr double kCaps[] = {0, 15, 30, 50};
constexpr std::optional<double> kScales[] = {{}, -0.2, 0.0, 1.0};
constexpr Dtype kDtypes[] = {Dtype::f32, Dtype::bf16, Dtype::f16};

std::vector<AttentionCase> combinations(uint64_t seed) {
  const auto count = [](const auto& list) {
    return static_cast<int>(std::size(list));
  };
  const std::vector<int> levels = {count(kLengths),
                                   4,
                                   count(mask_kinds()),
                                   count(kTiles),
                                   count(kDims),
                                   count(kDims),
                                   count(kHeads),
                                   count(kDtypes),
                                   4,
                                   count(kCaps),
                                   count(kScales),
                                   2,
                                   2,
                                   2,
                                   2,
                                   2};
  Random random(seed);
  std::vector<AttentionCase> cases;
  for (const std::vector<int>& row : all_pairs(levels, random)) {
    auto next = row.begin();
    const auto level = [&] { return static_cast<size_t>(*next++); };
    AttentionCase c;
    int64_t q_len = kLengths[level()], kv_len = q_len;
    switch (level()) {
      case 0:
        break;
      case 1:  // a cache before the queries
        kv_len = q_len + uniform(random, 1, 60);
        break;
      case 2:  // fewer keys
        kv_len = std::max<int64_t>(1, q_len - uniform(random, 1, 40));
        break;
      default:  // few queries
        q_len = uniform(random, 1, 3);
    }
    const MaskKind& kind = mask_kinds()[level()];
    const Tile tile = kTiles[level()];
    c.shape.head_dim = kDims[level()];
    c.shape.v_head_dim = kDims[level()];
    std::tie(c.shape.heads, c.shape.kv_heads) = kHeads[level()];
    const auto plan_heads =
        std::max(std::ssize(kind.masks), std::max<int64_t>(1, kind.pick_heads));
    if (c.shape.heads < plan_heads) c.shape.heads = plan_heads;
    c.dtype = kDtypes[level()];
    c.layout = static_cast<Layout>(level());
    c.shape.softcap = kCaps[level()];
    c.shape.scale = kScales[level()];
    c.sinks = level() != 0;
    c.lse = level() != 0;
    c.dlse = level() != 0;
    const bool counts = level() != 0;
    c.q_size = level() != 0 ? 20 : 1;
    c.seed = random();
    c.plan = case_of(kind, q_len * kv_len > 20000 ? 1 : 2, q_len, kv_len, tile,
                     counts, c.seed);
    cases.push_back(std::move(c));
  }
  return cases;
}

TEST(Cpu, EveryPairOfChoicesIsRight) {
  const uint64_t seed = testing::first_seed(1);
  for (const AttentionCase& c : combinations(seed)) {
    ASSERT_TRUE(well_formed(c.plan)) << describe(c);
    if (auto fault = cpu_fault(c)) {
      FAIL() << "run again with TESSERA_SEED=" << seed << "\n"
             << *fault << "\n"
             << describe(c);
    }
  }
}

// ---- Where it is delicate. ----

// A mask without facts, in f32 if not told otherwise.
AttentionCase plain(const char* mask, int64_t q_len, int64_t kv_len,
                    int64_t dim = 32) {
  AttentionCase c;
  c.plan = case_of({{mask}}, 1, q_len, kv_len, {64, 64}, false, 2);
  c.plan.q_offsets.reset();
  c.shape = {2, 1, dim, dim, {}, 0};
  return c;
}

void expect_right(const AttentionCase& c) {
  const auto fault = cpu_fault(c);
  EXPECT_FALSE(fault) << *fault << "\n" << describe(c);
}

// The tests here force each ISA of the machine; this one names the kernels that
// they therefore did not judge.
TEST(Cpu, EveryKernelIsJudgedOnThisMachine) {
  const std::vector<Isa> there = machine_isas();
  std::string absent;
  const auto look = [&](const char* name, const auto& variants) {
    for (const auto& v : variants) {
      if (std::ranges::find(there, v.isa) != there.end()) continue;
      absent += std::string(" ") + name + " " + std::string(to_string(v.isa));
    }
  };
  look("forward", forward_variants());
  look("backward", backward_variants());
  if (!absent.empty()) GTEST_SKIP() << "this machine cannot run" << absent;
}

TEST(Cpu, LargeLogitsStaySafe) {
  for (const Dtype dtype : kDtypes) {
    for (const double cap : kCaps) {
      for (const bool sinks : {false, true}) {
        AttentionCase c = plain("causal", 100, 140, 64);
        c.q_size = 1e4;
        c.dtype = dtype;
        c.shape.softcap = cap;
        c.sinks = sinks;
        expect_right(c);
      }
    }
  }
}

TEST(Cpu, ManyKeysForFewQueries) {
  for (const Dtype dtype : kDtypes) {
    for (const int64_t queries : {1, 2, 5}) {
      AttentionCase c = plain("causal", queries, 2500, 64);
      c.shape.heads = 4;
      c.dtype = dtype;
      expect_right(c);
      c.plan.masks = {*parse_expr("causal & window(1111, 0)")};
      expect_right(c);
    }
  }
}

// Many intervals of keys a query: each bound falls on every lane.
TEST(Cpu, ManyIntervals) {
  for (const char* mask :
       {"!window(3, 3) & !chunk(9)", "chunk(7) | window(40, -1) & !chunk(11)",
        "sink(2) | window(0, 0) | chunk(5) & !causal",
        "!(chunk(3) | window(1, 17)) | window(0, 0)"}) {
    for (const Dtype dtype : kDtypes) {
      AttentionCase c = plain(mask, 150, 210, 24);
      c.dtype = dtype;
      expect_right(c);
    }
  }
}

// Every other row, and every row of a tile, sees nothing.
TEST(Cpu, RowsWithoutKeys) {
  for (const bool sinks : {false, true}) {
    for (const Dtype dtype : kDtypes) {
      AttentionCase c = plain("documents", 130, 130, 16);
      std::vector<int32_t> ids(130, 0);
      for (size_t i = 0; i < 64; ++i) ids[i] = i % 2 == 0 ? -1 : 1;
      for (size_t i = 64; i < 80; ++i) ids[i] = -1;
      c.plan.doc_ids = ids;
      c.plan.tile = {16, 16};
      c.sinks = sinks;
      c.dlse = true;
      c.dtype = dtype;
      expect_right(c);
    }
  }
}

TEST(Cpu, SubnormalAndHugeNumbers) {
  for (const Dtype dtype : kDtypes) {
    for (const double size : {1e-30, 1e-7, 1e3}) {
      AttentionCase c = plain("causal", 70, 70, 40);
      c.q_size = size;
      c.dtype = dtype;
      expect_right(c);
    }
  }
}

// ---- What is not finite. ----

struct Odd {
  char array;
  int64_t token, d;
  double value;
};

// Every number that a call wrote, as bits: out, dq, dk, dv, lse.
std::vector<uint32_t> written(AttentionArrays& arrays) {
  std::vector<uint32_t> all;
  const auto add = [&](const auto& t) {
    const auto width = static_cast<size_t>(byte_width(t.dtype));
    for (int64_t h = 0; h < t.heads; ++h) {
      for (int64_t i = 0; i < t.tokens; ++i) {
        const auto* at =
            static_cast<const uint8_t*>(t.data) +
            (h * t.head_stride + i * t.token_stride) * byte_width(t.dtype);
        for (int64_t d = 0; d < t.dim; ++d, at += width) {
          std::memcpy(&all.emplace_back(), at, width);
        }
      }
    }
  };
  const BackwardTensors t = arrays.backward();
  add(t.out), add(t.dq), add(t.dk), add(t.dv);
  for (const float x : t.lse) all.push_back(std::bit_cast<uint32_t>(x));
  return all;
}

std::vector<double> values(const Wanted& w) {
  std::vector<double> all;
  for (const auto* which : {&w.out, &w.dq, &w.dk, &w.dv, &w.lse}) {
    for (const Expected& e : *which) all.push_back(e.value);
  }
  return all;
}

// What the numbers that are not finite are illegal for keeps its bits, all else
// is what the reference says.
void expect_reaches_legal_pairs_only(
    const AttentionCase& c, const std::vector<std::vector<Odd>>& trials) {
  AttentionArrays clean(c);
  const Wanted want = wanted(clean);
  const std::vector<double> before = values(want);
  std::vector<std::vector<uint32_t>> bits;
  for (const Isa isa : machine_isas()) {
    ASSERT_EQ(cpu_fault(clean, want, isa, 1), std::nullopt);
    bits.push_back(written(clean));
  }
  for (const std::vector<Odd>& odd : trials) {
    AttentionArrays arrays(c);
    for (const Odd& o : odd) arrays.set(o.array, 0, 0, o.token, o.d, o.value);
    const Wanted want_odd = wanted(arrays);
    const std::vector<double> after = values(want_odd);
    ASSERT_NE(before, after);
    auto clean_bits = bits.begin();
    for (const Isa isa : machine_isas()) {
      const auto fault = cpu_fault(arrays, want_odd, isa, 1);
      // An infinite dout leaves Inf or NaN, as delta is dout . out or a sum of
      // p times dout . v.
      if (odd[0].array != 'd' || !std::isinf(odd[0].value)) {
        ASSERT_FALSE(fault)
            << *fault << "\n"
            << odd[0].array << " of token " << odd[0].token << "\n"
            << describe(c);
      }
      const std::vector<uint32_t> got = written(arrays);
      for (size_t i = 0; i < got.size(); ++i) {
        if (before[i] != after[i]) continue;
        ASSERT_EQ(got[i], (*clean_bits)[i])
            << to_string(isa) << ": element " << i << " for " << odd[0].array
            << " of token " << odd[0].token << "\n"
            << describe(c);
      }
      ++clean_bits;
    }
  }
}

TEST(Cpu, WhatIsNotFiniteReachesItsLegalPairsOnly) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  for (const Dtype dtype : kDtypes) {
    for (const char* mask :
         {"causal", "window(9, 4)", "chunk(24)", "!window(6, 6) & causal"}) {
      AttentionCase c = plain(mask, 140, 140, 40);
      c.dtype = dtype;
      expect_reaches_legal_pairs_only(
          c, {{{'k', 40, 3, nan}},
              {{'k', 130, 39, nan}},
              {{'k', 71, 5, inf}},
              {{'v', 71, 39, nan}},
              {{'v', 2, 0, inf}},
              {{'q', 71, 8, nan}},
              {{'q', 139, 8, inf}},
              {{'d', 127, 17, nan}},
              {{'d', 64, 17, -inf}},
              {{'k', 64, 3, nan}, {'v', 31, 5, inf}, {'d', 90, 1, nan}}});
    }
  }
}

// ---- Judged by something else: differences of the reference's outputs. ----

TEST(Cpu, GradientsAreSlopes) {
  for (const bool capped : {false, true}) {
    AttentionCase c = plain("causal & window(9, 0)", 12, 17, 8);
    c.sinks = c.dlse = true;
    c.shape.softcap = capped ? 2 : 0;
    AttentionArrays arrays(c);
    const Wanted want = wanted(arrays);
    const BackwardTensors t = arrays.backward();
    const auto wide = [](const TensorView& x) {  // dense, as `plain` has them
      const auto* data = static_cast<const float*>(x.data);
      return std::vector<double>(data, data + x.heads * x.tokens * x.dim);
    };
    std::vector<double> q = wide(t.q), k = wide(t.k), v = wide(t.v);
    const std::vector<double> g = wide(t.dout);
    std::vector<double> z(t.sink_logits->begin(), t.sink_logits->end());
    const auto loss = [&] {
      AttentionInputs in{q, k, v, z};
      const auto out =
          *reference_forward(arrays.request, arrays.facts, c.shape, in);
      double sum = 0;
      for (size_t i = 0; i < g.size(); ++i) {
        if (std::isfinite(g[i])) sum += g[i] * out.out[i];
      }
      for (size_t i = 0; i < out.lse.size(); ++i) {
        sum += double{t.dlse[i]} * out.lse[i];
      }
      return sum;
    };
    for (const Isa isa : machine_isas()) {
      ASSERT_EQ(cpu_fault(arrays, want, isa, 1), std::nullopt);
      const auto expect_slopes = [&](const char* name, std::vector<double>& x,
                                     const float* gradient,
                                     const std::vector<Expected>& bound) {
        for (size_t i = 0; i < x.size(); ++i) {
          if (!std::isfinite(x[i])) continue;  // read by nobody
          const double was = x[i];
          constexpr double kStep = 1e-5;
          x[i] = was + kStep;
          const double up = loss();
          x[i] = was - kStep;
          const double down = loss();
          x[i] = was;
          EXPECT_NEAR(gradient[i], (up - down) / (2 * kStep),
                      bound[i].error + 0x1p-23 * std::abs(gradient[i]) + 1e-7)
              << name << " " << i << " " << to_string(isa);
        }
      };
      expect_slopes("dq", q, static_cast<const float*>(t.dq.data), want.dq);
      expect_slopes("dk", k, static_cast<const float*>(t.dk.data), want.dk);
      expect_slopes("dv", v, static_cast<const float*>(t.dv.data), want.dv);
      expect_slopes("dsink", z, t.dsink_logits.data(), want.dsinks);
    }
  }
}

}  // namespace
}  // namespace tessera
