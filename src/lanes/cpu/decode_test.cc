// lanes/cpu/decode_test.cc: few queries against many keys, compared with the
// reference within the error bound of fp32 attention.
#include "lanes/cpu/decode.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/decode/decode.h"
#include "lanes/reference/reference.h"
#include "plan/make_plan.h"
#include "tessera/plan.h"
#include "tests/random_tree.h"

namespace tessera::cpu {
namespace {

using Doubles = std::vector<double>;
using Int32s = std::vector<int32_t>;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kEps32 = 0x1p-24;
constexpr Dtype kDtypes[] = {Dtype::f32, Dtype::bf16, Dtype::f16};

// The bits of x in a dtype. Exact for the numbers that cases draw, NaN and Inf.
uint32_t bits_of(double x, Dtype dtype) {
  const auto f = static_cast<float>(x);
  uint32_t bits;
  std::memcpy(&bits, &f, sizeof bits);
  if (dtype == Dtype::f32) return bits;
  if (dtype == Dtype::bf16) return bits >> 16;
  const uint32_t sign = bits >> 16 & 0x8000;
  if (std::isnan(x)) return 0x7e00;
  if (std::isinf(x)) return sign | 0x7c00;
  if (x == 0) return sign;
  return sign | ((bits & 0x7fffffff) - (112u << 23)) >> 13;
}

double number_of(uint32_t bits, Dtype dtype) {
  if (dtype == Dtype::f16) {
    const auto exponent = static_cast<int>(bits >> 10 & 31);
    const double fraction = bits & 0x3ff;
    const double sign = bits & 0x8000 ? -1 : 1;
    if (exponent == 31) return fraction == 0 ? sign * kInf : kNan;
    if (exponent == 0) return sign * std::ldexp(fraction, -24);
    return sign * std::ldexp(1024 + fraction, exponent - 25);
  }
  if (dtype == Dtype::bf16) bits <<= 16;
  float f;
  std::memcpy(&f, &bits, sizeof f);
  return f;
}

// [batch, heads, tokens, dim] as numbers, and as an array with strides.
struct Tensor {
  Doubles numbers;
  Dtype dtype = Dtype::f32;
  std::vector<char> bytes;
  TensorView view;

  double* row(int64_t b, int64_t h, int64_t i) {
    return numbers.data() + ((b * view.heads + h) * view.tokens + i) * view.dim;
  }
  void pack(Dtype as, bool bshd, int64_t batch, int64_t heads, int64_t tokens,
            int64_t dim) {
    dtype = as;
    view = bshd ? TensorView::bshd(nullptr, as, batch, heads, tokens, dim)
                : TensorView::bhsd(nullptr, as, batch, heads, tokens, dim);
    // Exactly as large as the numbers, so a sanitizer finds reads past the end.
    bytes.assign(
        static_cast<size_t>(batch * heads * tokens * dim * byte_width(as)), 0);
    view.data = bytes.data();
    for (size_t i = 0; i < numbers.size(); ++i) {
      const uint32_t bits = bits_of(numbers[i], as);
      std::memcpy(place(i), &bits, static_cast<size_t>(byte_width(as)));
    }
  }
  double stored(size_t i) {
    uint32_t bits = 0;
    std::memcpy(&bits, place(i), static_cast<size_t>(byte_width(dtype)));
    return number_of(bits, dtype);
  }

 private:
  char* place(size_t number) {
    auto n = static_cast<int64_t>(number);
    const int64_t d = n % view.dim;
    n /= view.dim;
    const int64_t i = n % view.tokens;
    n /= view.tokens;
    const int64_t at = n / view.heads * view.batch_stride +
                       n % view.heads * view.head_stride +
                       i * view.token_stride + d;
    return bytes.data() + at * byte_width(dtype);
  }
};

struct Case {
  std::string mask = "causal";
  int64_t batch = 1, q_len = 1, kv_len = 64;
  Tile tile{8, 64};
  AttentionShape shape{4, 2, 64, 40, {}, 0};
  Dtype dtype = Dtype::f32;
  bool bshd = false;
  bool nan_where_illegal = false;  // for every query of the K/V head
  Int32s doc_ids, counts, picks, tree_enter, tree_leave;
  int64_t pick_heads = 1;
  Doubles sink_logits;
  uint64_t seed = 1;

  Request request;
  Facts facts;
  Tensor q, k, v, out;
  std::vector<float> lse, sinks;

  void make() {
    request.masks = {*parse_mask(mask)};
    request.batch = batch;
    request.q_len = q_len;
    request.kv_len = kv_len;
    request.tile = tile;
    if (!doc_ids.empty()) facts.doc_ids = doc_ids;
    if (!counts.empty()) facts.valid_token_counts = counts;
    if (!tree_enter.empty()) facts.tree_enter = tree_enter;
    if (!tree_leave.empty()) facts.tree_leave = tree_leave;
    if (!picks.empty()) {
      facts.picks = Picks{
          picks, pick_heads,
          static_cast<int64_t>(picks.size()) / batch / pick_heads / q_len};
    }
    std::mt19937_64 random(seed);
    const auto numbers = [&](Tensor& t, int64_t n) {
      t.numbers.resize(static_cast<size_t>(n));
      for (double& x : t.numbers) {
        x = (static_cast<double>(random() % 257) - 128) / 128;
      }
    };
    numbers(q, batch * shape.heads * q_len * shape.head_dim);
    numbers(k, batch * shape.kv_heads * kv_len * shape.head_dim);
    numbers(v, batch * shape.kv_heads * kv_len * shape.v_head_dim);
    out.numbers.assign(
        static_cast<size_t>(batch * shape.heads * q_len * shape.v_head_dim), 7);
    lse.assign(static_cast<size_t>(batch * shape.heads * q_len), 7);
    sinks.assign(sink_logits.begin(), sink_logits.end());
    pack();
    if (nan_where_illegal) {
      auto legality = Legality::bind(request, facts);
      ASSERT_TRUE(legality.ok()) << legality.error().message;
      const int64_t group = shape.heads / shape.kv_heads;
      for (int64_t b = 0; b < batch; ++b) {
        for (int64_t h = 0; h < shape.kv_heads; ++h) {
          for (int64_t key = 0; key < kv_len; ++key) {
            bool any = false;
            for (int64_t i = 0; i < group * q_len; ++i) {
              any |= legality->legal(
                  b, (h * group + i / q_len) * legality->heads() / shape.heads,
                  i % q_len, key);
            }
            if (any) continue;
            std::fill_n(k.row(b, h, key), shape.head_dim, kNan);
            std::fill_n(v.row(b, h, key), shape.v_head_dim, kNan);
          }
        }
      }
      pack();
    }
  }

  void pack() {
    q.pack(dtype, bshd, batch, shape.heads, q_len, shape.head_dim);
    k.pack(dtype, bshd, batch, shape.kv_heads, kv_len, shape.head_dim);
    v.pack(dtype, bshd, batch, shape.kv_heads, kv_len, shape.v_head_dim);
    out.pack(dtype, bshd, batch, shape.heads, q_len, shape.v_head_dim);
  }

  CpuRun run(Isa isa, int threads = 1) {
    auto plan = plan::make_plan(request, facts);
    EXPECT_TRUE(plan.ok()) << plan.error().message;
    auto work = cpu_prepare(*BorrowedBatch::make(request, facts));
    EXPECT_TRUE(work.ok()) << work.error().message;
    std::fill(out.bytes.begin(), out.bytes.end(), char{1});
    std::fill(lse.begin(), lse.end(), 7.0F);
    ForwardTensors t;
    t.q = q.view;
    t.k = k.view;
    t.v = v.view;
    const TensorView& o = out.view;
    t.out = {out.bytes.data(), o.dtype,       o.batch,
             o.heads,          o.tokens,      o.dim,
             o.batch_stride,   o.head_stride, o.token_stride};
    t.lse = lse;
    if (!sinks.empty()) t.sink_logits = sinks;
    double progress = 0;
    CpuOptions options{threads, isa, [&](double x) { progress = x; }};
    auto ran = cpu_forward(*work, shape, t, options);
    EXPECT_TRUE(ran.ok()) << ran.error().message;
    if (!ran.ok()) return {};
    if (threads == 1) {
      EXPECT_EQ(progress, 1);
    }
    int64_t legal = 0;
    for (const int64_t n : plan->legal_pairs) legal += n;
    // No score of an illegal pair is ever computed.
    EXPECT_EQ(ran->pairs_run, legal * (shape.heads / plan->heads));
    return *ran;
  }
};

struct Expected {
  reference::AttentionOutputs is;
  Doubles size;              // sum of p |v|
  Doubles score_size, keys;  // per row
};

Expected expect(Case& c) {
  const Doubles sinks(c.sinks.begin(), c.sinks.end());
  reference::AttentionInputs in{c.q.numbers, c.k.numbers, c.v.numbers,
                                std::nullopt};
  if (!sinks.empty()) in.sink_logits = sinks;
  auto is = reference::reference_forward(c.request, c.facts, c.shape, in);
  EXPECT_TRUE(is.ok()) << is.error().message;
  Doubles magnitudes = c.v.numbers;
  for (double& x : magnitudes) x = std::abs(x);
  in.v = magnitudes;
  auto size = reference::reference_forward(c.request, c.facts, c.shape, in);
  Expected e{*is, size->out, {}, {}};
  auto legality = Legality::bind(c.request, c.facts);
  const AttentionShape& s = c.shape;
  const double scale = std::abs(s.scale_or_default());
  for (int64_t b = 0; b < c.batch; ++b) {
    for (int64_t h = 0; h < s.heads; ++h) {
      for (int64_t i = 0; i < c.q_len; ++i) {
        double most = 0, keys = 0;
        const double* q = c.q.row(b, h, i);
        for (int64_t key = 0; key < c.kv_len; ++key) {
          if (!legality->legal(b, h * legality->heads() / s.heads, i, key)) {
            continue;
          }
          const double* k = c.k.row(b, h / (s.heads / s.kv_heads), key);
          double sum = 0;
          for (int64_t d = 0; d < s.head_dim; ++d) sum += std::abs(q[d] * k[d]);
          // An infinite score is exact.
          if (std::isfinite(sum)) most = std::max(most, scale * sum);
          ++keys;
        }
        e.score_size.push_back(most);
        e.keys.push_back(keys);
      }
    }
  }
  return e;
}

// |err| <= eps_out |ref| + sum(p |v|) (eps_P + (8 + sqrt n) eps32 + 2 (D + 4)
// eps32 max(scale sum |q k|)); exactly 0 without keys; NaN and Inf must match.
void judge(Case& c, const Expected& e) {
  const double eps = c.dtype == Dtype::f32    ? kEps32
                     : c.dtype == Dtype::bf16 ? 0x1p-8
                                              : 0x1p-11;
  const double eps_p = c.dtype == Dtype::bf16 ? 0x1p-8 : 0;
  const double tiny = c.dtype == Dtype::f16 ? 0x1p-25 : 0x1p-120;
  const int64_t dim = c.shape.v_head_dim;
  int bad = 0;
  const auto check = [&](const char* name, size_t i, double got, double want,
                         double allowed) {
    const bool good = std::isnan(want)   ? std::isnan(got)
                      : std::isinf(want) ? got == want
                                         : std::abs(got - want) <= allowed;
    if (!good && ++bad <= 3) {
      ADD_FAILURE() << name << "[" << i << "] is " << got << ", not " << want
                    << " within " << allowed << "; " << c.mask << " q "
                    << c.q_len << " kv " << c.kv_len << " dims "
                    << c.shape.head_dim << " " << dim << " "
                    << to_string(c.dtype);
    }
  };
  for (size_t r = 0; r < c.lse.size(); ++r) {
    const double scores = 2 * static_cast<double>(c.shape.head_dim + 4) *
                          kEps32 * e.score_size[r];
    const double sums = (8 + std::sqrt(e.keys[r])) * kEps32 + scores;
    check("lse", r, c.lse[r], e.is.lse[r],
          e.keys[r] == 0 ? 0 : kEps32 * std::abs(e.is.lse[r]) + sums);
    for (int64_t d = 0; d < dim; ++d) {
      const size_t i = r * static_cast<size_t>(dim) + static_cast<size_t>(d);
      check("out", i, c.out.stored(i), e.is.out[i],
            e.keys[r] == 0 ? 0
                           : eps * std::abs(e.is.out[i]) +
                                 e.size[i] * (eps_p + sums) + tiny);
    }
  }
}

// Runs and judges the case on every ISA of this machine.
void check_all(Case& c) {
  c.make();
  const Expected e = expect(c);
  for (const Isa isa : machine_isas()) {
    SCOPED_TRACE(to_string(isa));
    c.run(isa);
    judge(c, e);
  }
}

TEST(Decode, EverySizeOfQueriesKeysAndHeads) {
  const std::pair<int64_t, int64_t> dims[] = {{8, 40},   {40, 8},   {64, 128},
                                              {128, 64}, {256, 24}, {24, 256}};
  size_t turn = 0;
  for (int64_t q_len = 1; q_len <= 4; ++q_len) {
    for (const int64_t kv_len : {1, 7, 63, 64, 65, 1000, 5000}) {
      for (const auto& [head_dim, v_head_dim] : dims) {
        Case c;
        c.mask = q_len > kv_len ? "full" : "causal";
        c.q_len = q_len;
        c.kv_len = kv_len;
        c.shape = {2, kv_len > 1000 ? 1 : 2, head_dim, v_head_dim, {}, 0};
        // There are seven sizes, so every pair of dims gets every dtype.
        c.dtype = kDtypes[turn++ % 3];
        c.seed = turn;
        check_all(c);
      }
      ++turn;
    }
  }
}

Case with_mask(const std::string& mask, int64_t q_len) {
  Case c;
  c.mask = mask;
  c.batch = 2;
  c.q_len = q_len;
  c.kv_len = 333;
  c.tile = {8, 16};
  c.shape = {6, 2, 32, 48, {}, 0};
  c.nan_where_illegal = true;
  std::mt19937_64 random(static_cast<uint64_t>(q_len));
  if (mask.find("documents") != mask.npos ||
      mask.find("segments") != mask.npos) {
    for (int64_t i = 0; i < c.batch * c.kv_len; ++i) {
      const int64_t j = i % c.kv_len;
      // Short runs near the end, so that queries are in several documents.
      c.doc_ids.push_back(static_cast<int32_t>(
          j < c.kv_len - 8 ? j / 50 % 3 : (j + i / c.kv_len) / 2 % 3));
    }
  }
  if (mask.find("tree") != mask.npos) {
    for (int64_t b = 0; b < c.batch; ++b) {
      testing::append_random_tree(random, c.kv_len, c.kv_len, c.tree_enter,
                                  c.tree_leave);
    }
  }
  if (mask.find("blocks") != mask.npos) {
    c.pick_heads = q_len == 1 ? 1 : q_len == 3 ? 2 : 6;
    for (int64_t i = 0; i < c.batch * c.pick_heads * q_len * 4; ++i) {
      c.picks.push_back(static_cast<int32_t>(random() % 22) - 1);
    }
  }
  return c;
}

TEST(Decode, EveryMaskWithNanBehindIt) {
  size_t turn = 0;
  for (const int64_t q_len : {1, 3, 4, 8}) {
    for (const char* mask :
         {"full", "causal", "causal & window(100, 0)", "window(9, 9)",
          "causal & documents", "causal & segments", "!documents",
          "causal & documents & window(20, 0)", "sink(4) | window(30, 0)",
          "causal & chunk(64)", "blocks(16)", "causal & blocks(16)",
          "!blocks(16)", "causal & !window(40, 0)", "tree",
          "tree & (documents | sink(3))"}) {
      Case c = with_mask(mask, q_len);
      c.dtype = kDtypes[turn++ % 3];
      c.bshd = turn % 2 == 0;
      check_all(c);
    }
  }
}

TEST(Decode, ValidCountsWithNanBehindThem) {
  for (const Dtype dtype : kDtypes) {
    Case c = with_mask("causal", 4);
    c.dtype = dtype;
    c.counts = {331, 333};  // two queries of the first row have no legal key
    check_all(c);
    EXPECT_EQ(c.lse[3], -kInf);
    EXPECT_EQ(c.out.stored(3 * 48), 0);
  }
}

TEST(Decode, NoLegalKeyGivesZeroOrTheSinkLogit) {
  for (const Dtype dtype : kDtypes) {
    for (const bool sink : {false, true}) {
      Case c = with_mask("!full", 2);
      c.dtype = dtype;
      if (sink) c.sink_logits = {1, -2, kInf, -kInf, kNan, 0};
      check_all(c);
    }
  }
}

TEST(Decode, SoftcapScaleAndSinkLogits) {
  size_t turn = 0;
  for (const double softcap : {0.0, 1.0, 15.0, 30.0, 50.0}) {
    for (const double scale : {-0.3, 0.0, 0.125, 4.0}) {
      Case c = with_mask("causal", 1 + static_cast<int64_t>(turn % 4));
      c.shape.softcap = softcap;
      c.shape.scale = scale;
      c.dtype = kDtypes[turn++ % 3];
      if (turn % 2 == 0) c.sink_logits = {0, 5, -5, 40, -kInf, 1};
      check_all(c);
    }
  }
}

// The log-sum-exp beside a huge sink logit is that logit, to the bit.
TEST(Decode, SinkLogitsOfAnySize) {
  for (const Dtype dtype : kDtypes) {
    Case c = with_mask("causal", 3);
    c.dtype = dtype;
    c.sink_logits = {3e38, -3e38, 2.4e38, -kInf, 1e6, -1e6};
    for (double& z : c.sink_logits) z = static_cast<float>(z);
    check_all(c);
    for (size_t h : {size_t{0}, size_t{2}, size_t{4}}) {
      EXPECT_EQ(c.lse[h * 3], c.sinks[h]);
    }
  }
}

TEST(Decode, HeadsThatShareKeys) {
  const std::pair<int64_t, int64_t> heads[] = {{32, 8}, {32, 1}, {17, 1},
                                               {12, 4}, {5, 5},  {14, 2}};
  for (const auto& [query_heads, kv_heads] : heads) {
    for (const int64_t q_len : {1, 3, 8}) {
      for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
        Case c;
        c.q_len = q_len;
        c.kv_len = 130;
        c.shape = {query_heads, kv_heads, 32, 64, {}, 0};
        c.dtype = dtype;
        c.bshd = q_len == 3;
        check_all(c);
      }
    }
  }
}

// Infinite scores follow IEEE, as the reference does.
TEST(Decode, InfiniteScores) {
  for (const Dtype dtype : kDtypes) {
    for (const double softcap : {0.0, 15.0}) {
      for (const bool sink : {false, true}) {
        Case c;
        c.kv_len = 70;
        c.q_len = 2;
        c.dtype = dtype;
        c.shape.softcap = softcap;
        if (sink) c.sink_logits = {0, 1, 2, -kInf};
        c.make();
        // Head 0: all scores -inf. Head 2: one score -inf. Head 3: one +inf.
        for (int64_t h = 0; h < 4; ++h) {
          for (int64_t i = 0; i < 2; ++i) {
            std::fill_n(c.q.row(0, h, i), 64, h == 3 ? 1.0 : -1.0);
          }
        }
        for (int64_t key = 0; key < 70; ++key) *c.k.row(0, 0, key) = kInf;
        *c.k.row(0, 1, 5) = kInf;
        c.pack();
        const Expected e = expect(c);
        for (const Isa isa : machine_isas()) {
          SCOPED_TRACE(to_string(isa));
          c.run(isa);
          judge(c, e);
        }
      }
    }
  }
}

// A key changes no bit of queries that may not attend to it.
TEST(Decode, NanOfAKeyReachesItsQueriesOnly) {
  for (const Dtype dtype : kDtypes) {
    for (const Isa isa : machine_isas()) {
      SCOPED_TRACE(to_string(isa));
      Case c;
      c.q_len = 4;
      c.kv_len = 100;
      c.dtype = dtype;
      c.make();
      c.run(isa);
      const std::vector<char> clean = c.out.bytes;
      for (const double poison : {kNan, kInf}) {
        // Only query 3 sees the last key, queries 2 and 3 the one before.
        std::fill_n(c.k.row(0, 0, 99), 64, poison);
        std::fill_n(c.v.row(0, 1, 98), 40, poison);
        c.pack();
        c.run(isa);
        const auto width = static_cast<size_t>(40 * byte_width(dtype));
        for (size_t r = 0; r < 16; ++r) {
          const bool hit = r < 8 ? r % 4 == 3 : r % 4 >= 2;
          const bool same =
              std::memcmp(clean.data() + r * width,
                          c.out.bytes.data() + r * width, width) == 0;
          EXPECT_EQ(same, !hit) << "row " << r;
        }
      }
    }
  }
}

TEST(Decode, SameBitsForEveryNumberOfThreads) {
  for (const char* mask : {"causal", "causal & window(6000, 0)",
                           "causal & documents", "blocks(16)"}) {
    for (const Dtype dtype : kDtypes) {
      Case c = with_mask(mask, 3);
      c.kv_len = 4 * kDecodeKeys + 100;
      c.nan_where_illegal = false;
      c.dtype = dtype;
      c.doc_ids.clear();
      for (int64_t i = 0; i < c.batch * c.kv_len; ++i) {
        c.doc_ids.push_back(static_cast<int32_t>(i % c.kv_len / 1000 % 2));
      }
      c.make();
      for (const Isa isa : machine_isas()) {
        c.run(isa);
        const std::vector<char> bytes = c.out.bytes;
        const std::vector<float> lse = c.lse;
        for (const int threads : {2, 3, 7}) {
          const CpuRun ran = c.run(isa, threads);
          EXPECT_EQ(ran.threads, threads);
          EXPECT_EQ(c.out.bytes, bytes) << mask << " " << threads;
          EXPECT_EQ(c.lse, lse) << mask << " " << threads;
        }
      }
      judge(c, expect(c));
    }
  }
}

TEST(Decode, CountsTiles) {
  Case c = with_mask("causal & window(100, 0)", 1);
  c.make();
  const CpuRun ran = c.run(Isa::portable);
  // Keys 232 to 332 of 333: tiles 14 to 20 of 21, twice 6 heads.
  EXPECT_EQ(ran.tiles_run, 7 * 12);
  EXPECT_EQ(ran.tiles_skipped, 14 * 12);
  EXPECT_EQ(ran.isa, Isa::portable);
}

TEST(Decode, EveryVariantIsThere) {
  ASSERT_FALSE(kernels::decode_variants().empty());
  EXPECT_EQ(kernels::decode_variants().front().isa, Isa::portable);
  for (const kernels::DecodeVariant& v : kernels::decode_variants()) {
    EXPECT_NE(v.run, nullptr);
    EXPECT_NE(v.merge, nullptr);
    const auto there = machine_isas();
    if (std::find(there.begin(), there.end(), v.isa) == there.end()) {
      GTEST_SKIP() << to_string(v.isa) << " is not on this machine: not run";
    }
  }
}

}  // namespace
}  // namespace tessera::cpu
