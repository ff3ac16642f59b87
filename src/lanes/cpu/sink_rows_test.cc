// lanes/cpu/sink_rows_test.cc: mass and entropy of the cpu lane, and those of
// lanes/reference/sink_row.cc, against brute force in fp64 within the bounds of
// sink_row.cc. Telemetry changes no bit of what forward writes.
#include "lanes/cpu/sink_rows.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "base/tensor_rows.h"
#include "lanes/cpu/blocks.h"
#include "lanes/cpu/work.h"
#include "lanes/reference/sink_row.h"
#include "tests/attention_case.h"
#include "tests/attention_choices.h"
#include "tests/oracle.h"
#include "tests/random_case.h"

namespace tessera::cpu {
namespace {

using reference::Expected;
using testing::AttentionArrays;
using testing::AttentionCase;
using testing::Oracle;
using testing::plain_attention;
using testing::RandomCase;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Row {
  bool live = false;
  double mass = 0, entropy = 0;
};

// The mass of sink(first) and -sum p log p by definition, in plain loops.
class BruteForce {
 public:
  BruteForce(AttentionArrays& arrays, int64_t first)
      : arrays_(arrays),
        legal_(arrays.c.plan.masks, arrays.c.plan.shape(), arrays.facts),
        first_(with_sink(arrays.c.plan.masks, first), arrays.c.plan.shape(),
               arrays.facts) {
    const TensorView k = arrays.forward(true).k;
    keys_.resize(static_cast<size_t>(k.batch * k.heads * k.tokens * k.dim));
    double* to = keys_.data();
    for (int64_t at = 0; at < k.batch * k.heads * k.tokens; ++at) {
      const int64_t row = at / k.tokens;
      read_row(k, row / k.heads, row % k.heads, at % k.tokens, to);
      to += k.dim;
    }
  }

  Row row(int64_t b, int64_t h, int64_t q) const {
    const AttentionShape& s = arrays_.c.shape;
    const ForwardTensors t = arrays_.forward(true);
    const int64_t plan_head = h / (s.heads / legal_.heads());
    const int64_t kv_head = h / (s.heads / s.kv_heads);
    const double* const keys =
        keys_.data() + (b * t.k.heads + kv_head) * t.k.tokens * s.head_dim;
    std::vector<double> query(static_cast<size_t>(s.head_dim));
    const double* const x = query.data();
    read_row(t.q, b, h, q, query.data());
    std::vector<double> score;
    std::vector<bool> counts;
    for (int64_t k = 0; k < t.k.tokens; ++k) {
      if (!legal_.legal(b, plan_head, q, k)) continue;
      const double* const y = keys + k * s.head_dim;
      double dot = 0;
      for (int64_t d = 0; d < s.head_dim; ++d) dot += x[d] * y[d];
      dot *= s.scale_or_default();
      if (s.softcap != 0) dot = s.softcap * std::tanh(dot / s.softcap);
      score.push_back(dot);
      counts.push_back(first_.legal(b, plan_head, q, k));
    }
    if (score.empty()) return {};
    if (t.sink_logits) {
      score.push_back((*t.sink_logits)[static_cast<size_t>(h)]);
      counts.push_back(false);
    }
    double top = -kInfinity, sum = 0;
    bool odd = false;
    for (const double c : score) {
      odd |= std::isnan(c) || c == kInfinity;
      top = std::max(top, c);
    }
    if (odd || top == -kInfinity) return {true, kNan, kNan};
    for (const double c : score) sum += std::exp(c - top);
    Row out{true, 0, 0};
    for (size_t i = 0; i < score.size(); ++i) {
      const double p = std::exp(score[i] - top) / sum;
      if (counts[i]) out.mass += p;
      if (p > 0) out.entropy -= p * (score[i] - top - std::log(sum));
    }
    return out;
  }

 private:
  static std::vector<Expr> with_sink(std::vector<Expr> masks, int64_t first) {
    for (Expr& e : masks) e = std::move(e) & sink(first);
    return masks;
  }

  AttentionArrays& arrays_;
  Oracle legal_, first_;
  std::vector<double> keys_;  // of every batch row and head
};

// The expected telemetry with its allowed error.
struct Want {
  std::vector<Expected> mass, entropy;
  std::vector<uint8_t> live;
};

std::optional<std::string> near(const char* what, double fp64, double brute,
                                double error) {
  if (std::isnan(fp64) && std::isnan(brute)) return {};
  // fp64 rounds 2^-29 as much as fp32; 2^-20 also allows another order of sums.
  if (std::abs(fp64 - brute) <= error * 0x1p-20 + 1e-300) return {};
  return fmt::format("{} in fp64 is {} for {}", what, fp64, brute);
}

std::optional<std::string> want_of(AttentionArrays& arrays, int64_t first,
                                   Want& want) {
  const AttentionShape& s = arrays.c.shape;
  const BruteForce brute(arrays, first);
  const auto batch = BorrowedBatch::make(arrays.request, arrays.facts);
  const auto fp64 =
      reference::sink_rows(*batch, s, arrays.forward(true), first);
  if (!fp64) return fp64.error().message;
  auto found = fp64->begin();
  for (int64_t b = 0; b < arrays.request.batch; ++b) {
    for (int64_t h = 0; h < s.heads; ++h) {
      for (int64_t q = 0; q < arrays.request.q_len; ++q) {
        const Row due = brute.row(b, h, q);
        const auto& [live, mass, entropy] = *found++;
        if (live != due.live) return "the reference calls it live";
        if (auto f = near("mass", mass.value, due.mass, mass.error)) return f;
        if (auto f =
                near("entropy", entropy.value, due.entropy, entropy.error)) {
          return f;
        }
        want.live.push_back(due.live ? 1 : 0);
        want.mass.push_back({due.mass, mass.error});
        want.entropy.push_back({due.entropy, entropy.error});
      }
    }
  }
  return {};
}

Result<lanes::SinkRows> rows_of(AttentionArrays& arrays, int64_t first, Isa isa,
                                int threads) {
  CpuOptions options;
  options.isa = isa;
  options.threads = threads;
  const auto batch = BorrowedBatch::make(arrays.request, arrays.facts);
  auto work = cpu_prepare(*batch, options);
  if (!work) return work.error();
  const auto among = lanes::first_keys_batch(*batch, first, "test");
  if (!among) return among.error();
  auto first_work = cpu_prepare(*among, options);
  if (!first_work) return first_work.error();
  return cpu_sink_rows(*work, *first_work, arrays.c.shape, arrays.forward(true),
                       options);
}

std::optional<std::string> fault(AttentionArrays& arrays, int64_t first) {
  Want want;
  if (auto f = want_of(arrays, first, want)) return f;
  for (const Isa isa : machine_isas()) {
    const auto got = rows_of(arrays, first, isa, 2);
    if (!got) return got.error().message;
    if (got->live != want.live) return "live queries differ";
    for (size_t i = 0; i < want.live.size(); ++i) {
      if (want.live[i] == 0 && (got->mass[i] != 0 || got->entropy[i] != 0)) {
        return "a query without a legal key has mass or entropy";
      }
      if (got->mass[i] < 0 || got->mass[i] > 1 || got->entropy[i] < 0) {
        return "mass is not 0 to 1, or entropy below 0";
      }
    }
    for (auto f :
         {testing::values_fault("mass", want.mass, got->mass),
          testing::values_fault("entropy", want.entropy, got->entropy)}) {
      if (f) return fmt::format("{}: {}", to_string(isa), *f);
    }
  }
  return {};
}

std::optional<std::string> fault(const AttentionCase& c, int64_t first) {
  AttentionArrays arrays(c);
  return fault(arrays, first);
}

TEST(CpuSinkRows, RandomCasesAreRight) {
  const uint64_t seed = testing::first_seed(1);
  const auto first_of = [](const RandomCase& c) {
    return static_cast<int64_t>(c.seed % 7 + 1);
  };
  const auto fails = [&](const RandomCase& c) {
    return fault(testing::random_attention(c), first_of(c));
  };
  for (int64_t i = 0; i < testing::case_count(300); ++i) {
    const RandomCase c = testing::random_case(seed + static_cast<uint64_t>(i));
    if (fails(c)) {
      const RandomCase least = testing::shrink(c, fails);
      FAIL() << "run again with TESSERA_SEED=" << c.seed << "\n"
             << *fails(least) << "\n"
             << describe(testing::random_attention(least));
    }
  }
}

TEST(CpuSinkRows, LongRowsAndEveryDtype) {
  for (const Dtype dtype : testing::kDtypes) {
    for (const char* mask : {"causal", "window(300, 0) | sink(5)", "full"}) {
      for (const int64_t queries : {1, 8, 140}) {
        for (const double size : {1.0, 30.0, 1e4}) {
          AttentionCase c = plain_attention(mask, queries, 420, 64);
          c.shape.heads = 4, c.shape.kv_heads = 2;
          c.dtype = dtype;
          c.q_size = size;
          c.sinks = queries == 8;
          c.shape.softcap = queries == 1 ? 30 : 0;
          const auto f = fault(c, 4);
          EXPECT_FALSE(f) << *f << "\n" << describe(c);
        }
      }
    }
  }
}

TEST(CpuSinkRows, SinkLogitsOfAnySize) {
  for (const Dtype dtype : testing::kDtypes) {
    AttentionCase c = plain_attention("causal", 40, 70);
    c.shape.heads = 8;
    c.dtype = dtype;
    c.sinks = true;
    c.sink_logits = testing::extreme_sinks();
    const auto f = fault(c, 3);
    EXPECT_FALSE(f) << *f << "\n" << describe(c);
  }
}

TEST(CpuSinkRows, InfiniteAndNanScores) {
  for (const double odd : {kInfinity, -kInfinity, kNan}) {
    for (const double cap : testing::kCaps) {
      for (const bool sinks : {false, true}) {
        AttentionCase c = plain_attention("causal", 40, 40);
        c.sinks = sinks;
        c.shape.softcap = cap;
        AttentionArrays arrays(c);
        // Three of the first keys, and one other key.
        for (const int64_t k : {0, 1, 2, 17}) arrays.set('k', 0, 0, k, 3, odd);
        const auto f = fault(arrays, 3);
        EXPECT_FALSE(f) << *f << "\n" << odd << " " << cap;
      }
    }
  }
}

TEST(CpuSinkRows, KnownRows) {
  // All scores are 0, so each of n keys has probability 1 / n.
  AttentionCase c = plain_attention("causal", 64, 64);
  c.shape.scale = 0;
  AttentionArrays arrays(c);
  const auto got = rows_of(arrays, 4, machine_isas().back(), 1);
  ASSERT_TRUE(got.ok());
  const auto batch = BorrowedBatch::make(arrays.request, arrays.facts);
  ASSERT_TRUE(batch.ok());
  // Scores of size 0 add no error, so only the sums set the judge's bounds.
  const auto bounds =
      reference::sink_rows(*batch, c.shape, arrays.forward(true), 4);
  ASSERT_TRUE(bounds.ok());
  const reference::Rounding cast = reference::rounding_of(Dtype::f32);
  for (size_t q = 0; q < 64; ++q) {
    const auto n = static_cast<double>(q + 1);
    const reference::Expected mass = {std::min(1.0, 4 / n),
                                      (*bounds)[q].mass.error};
    const reference::Expected entropy = {std::log(n),
                                         (*bounds)[q].entropy.error};
    // A larger bound would prove nothing.
    EXPECT_LE(std::max(mass.error, entropy.error), 64 * reference::kEps32);
    EXPECT_LE(reference::compare(mass, got->mass[q], cast).ratio, 1) << q;
    EXPECT_LE(reference::compare(entropy, got->entropy[q], cast).ratio, 1) << q;
  }
  EXPECT_EQ(got->mass[2], 1);
  EXPECT_EQ(got->entropy[0], 0);
}

TEST(CpuSinkRows, AnyNumberOfThreadsGivesTheSameBits) {
  AttentionCase c = plain_attention("window(60, 0) | sink(3)", 290, 410);
  c.shape.heads = 3, c.shape.kv_heads = 1;
  AttentionArrays arrays(c);
  for (const Isa isa : machine_isas()) {
    const auto one = rows_of(arrays, 3, isa, 1);
    ASSERT_TRUE(one.ok());
    for (const int threads : {2, 7}) {
      const auto more = rows_of(arrays, 3, isa, threads);
      ASSERT_TRUE(more.ok());
      EXPECT_EQ(one->mass, more->mass);
      EXPECT_EQ(one->entropy, more->entropy);
    }
  }
}

TEST(CpuSinkRows, ForwardHasTheSameBitsWithAndWithout) {
  for (const Dtype dtype : testing::kDtypes) {
    for (const bool sinks : {false, true}) {
      AttentionCase c = plain_attention("causal & !window(3, 0)", 100, 260, 48);
      c.dtype = dtype;
      c.sinks = sinks;
      c.shape.softcap = sinks ? 15 : 0;
      AttentionArrays arrays(c);
      const auto batch = BorrowedBatch::make(arrays.request, arrays.facts);
      const auto work = cpu_prepare(*batch);
      ASSERT_TRUE(work.ok());
      std::vector<float> entropy(static_cast<size_t>(c.shape.heads * 100));
      for (const Isa isa : machine_isas()) {
        const auto bits = [&](std::span<float> wanted) {
          arrays.clear_outputs();
          EXPECT_TRUE(run_blocks(work->state(), c.shape, arrays.forward(true),
                                 wanted, {}, isa, nullptr)
                          .ok());
          return arrays.bits();
        };
        const auto without = bits({});
        EXPECT_EQ(bits(entropy), without);
        // Telemetry writes none of the caller's arrays.
        ASSERT_TRUE(rows_of(arrays, 4, isa, 1).ok());
        EXPECT_EQ(arrays.bits(), without);
      }
    }
  }
}

}  // namespace
}  // namespace tessera::cpu
