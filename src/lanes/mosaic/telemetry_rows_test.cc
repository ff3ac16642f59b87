// lanes/mosaic/telemetry_rows_test.cc: joined rows against the definitions over
// scores.
#include "lanes/mosaic/telemetry_rows.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <random>
#include <vector>

#include "lanes/reference/bound.h"

namespace tessera::mosaic {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

struct Sums {
  double lse = -kInf, entropy = 0;
};
Sums sums_of(const std::vector<double>& scores) {
  Sums out;
  double total = 0;
  for (const double s : scores) total += std::exp(s);
  if (total == 0) return out;
  out.lse = std::log(total);
  for (const double s : scores) {
    const double p = std::exp(s - out.lse);
    if (p > 0) out.entropy -= p * (s - out.lse);
  }
  return out;
}

// The allowed error of a query with finite scores. Its inputs are stored in
// fp32, as L (1 + u) and so on; the join is in fp64, with some 16 roundings of
// numbers up to |L| + |z| + 1 on either side.
struct Allowed {
  double mass = 0, entropy = 0;
};
Allowed allowed(const Sums& own, double first_lse, double mass, double entropy,
                std::optional<double> sink) {
  constexpr double kEps = reference::kEps32;
  const double moved = kEps * std::abs(own.lse);  // of L
  double numbers = std::abs(own.lse) + std::abs(first_lse) + 1;
  Allowed out;
  out.entropy = kEps * (own.entropy + entropy);  // stored, and cast
  if (sink && std::isfinite(*sink)) {
    numbers += std::abs(*sink);
    // With a the keys' share, the derivative by L is a (1 - a) (H + z - L);
    // between L and its stored value, shares grow by e^moved at most.
    const double apart = *sink - own.lse;
    const double shares = 1 / ((1 + std::exp(apart)) * (1 + std::exp(-apart)));
    out.entropy += moved * std::exp(2 * moved) * shares *
                   (own.entropy + std::abs(apart) + moved);
  }
  // M changes by less than L.
  out.mass =
      mass *
      (std::expm1(moved + kEps * std::abs(first_lse)) * (1 + kEps) + kEps);
  out.mass += 0x1p-49 * numbers * mass;
  out.entropy += 0x1p-49 * (numbers + own.entropy);
  return out;
}

// Two lists of two heads each, over one batch row.
TEST(TelemetryRows, JoinsListsAndSinkLogits) {
  std::mt19937 random(1);
  std::normal_distribution<double> normal;
  constexpr int64_t kHeads = 4, kQueries = 6;
  for (const bool with_sinks : {false, true}) {
    std::vector<float> sinks = {0.5F, -30.0F, 40.0F,
                                -std::numeric_limits<float>::infinity()};
    std::vector<float> lse, entropy, first_lse;
    std::vector<double> mass, all;
    std::vector<Allowed> errors;
    std::vector<uint8_t> live = {1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 0};
    for (int64_t h = 0; h < kHeads; ++h) {
      for (int64_t q = 0; q < kQueries; ++q) {
        std::vector<double> scores(q == 5 ? 0 : 3 + static_cast<size_t>(q));
        for (double& s : scores) s = 3 * normal(random);
        const std::vector<double> first(
            scores.begin(), scores.begin() + (scores.empty() ? 0 : 2));
        const Sums own = sums_of(scores), few = sums_of(first);
        lse.push_back(static_cast<float>(own.lse));
        entropy.push_back(static_cast<float>(own.entropy));
        first_lse.push_back(static_cast<float>(few.lse));
        if (with_sinks) scores.push_back(sinks[static_cast<size_t>(h)]);
        const Sums joined = sums_of(scores);
        mass.push_back(q == 5 ? 0 : std::exp(few.lse - joined.lse));
        all.push_back(q == 5 ? 0 : joined.entropy);
        std::optional<double> sink;
        if (with_sinks) sink = sinks[static_cast<size_t>(h)];
        errors.push_back(
            q == 5 ? Allowed()
                   : allowed(own, few.lse, mass.back(), all.back(), sink));
      }
    }
    std::optional<std::span<const float>> logits;
    if (with_sinks) logits = sinks;
    const lanes::SinkRows got =
        join_rows({lse, entropy, first_lse}, live, 2, kHeads, kQueries, logits);
    for (size_t i = 0; i < mass.size(); ++i) {
      EXPECT_EQ(got.live[i], i % kQueries == 5 ? 0 : 1) << i;
      // A large bound would say nothing.
      EXPECT_LE(std::max(errors[i].mass, errors[i].entropy), 2e-5) << i;
      EXPECT_NEAR(got.mass[i], mass[i], errors[i].mass) << i;
      EXPECT_NEAR(got.entropy[i], all[i], errors[i].entropy) << i;
    }
  }
}

TEST(TelemetryRows, WhatIsNotFiniteIsNaN) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kLow = -std::numeric_limits<float>::infinity();
  // A NaN score; legal keys without weight; first keys alone without; +inf.
  const std::vector<float> lse = {kNan, kLow, 1, -kLow};
  const std::vector<float> entropy = {kNan, 0, 2, kNan};
  const std::vector<float> first = {kNan, kLow, kLow, kLow};
  const std::vector<uint8_t> live = {1, 1, 1, 1};
  const lanes::SinkRows got =
      join_rows({lse, entropy, first}, live, 1, 1, 4, {});
  for (const size_t i : {0, 1, 3}) {
    EXPECT_TRUE(std::isnan(got.mass[i])) << i;
    EXPECT_TRUE(std::isnan(got.entropy[i])) << i;
  }
  EXPECT_EQ(got.mass[2], 0);
  EXPECT_EQ(got.entropy[2], 2);
  // Then the sink has all weight.
  const std::vector<float> sink = {3};
  const lanes::SinkRows joined =
      join_rows({lse, entropy, first}, live, 1, 1, 4, sink);
  EXPECT_TRUE(std::isnan(joined.mass[0]));
  EXPECT_EQ(joined.mass[1], 0);
  EXPECT_EQ(joined.entropy[1], 0);
}

}  // namespace
}  // namespace tessera::mosaic
