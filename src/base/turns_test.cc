// base/turns_test.cc: the order of turns, and which results count.
#include "base/turns.h"

#include <gtest/gtest.h>

#include <string>

#include "base/fail.h"

namespace tessera {
namespace {

TEST(Turns, GoRoundInOrderAndTheWarmUpDoesNotCount) {
  std::string order;
  int run = 0;
  const auto turn = [&](char name) -> Turn<int> {
    return [&, name]() -> Result<int> {
      order += name;
      return ++run;
    };
  };
  const auto all =
      take_turns<int>(just(2, 1), {turn('a'), turn('b'), turn('c')});
  ASSERT_TRUE(all) << all.error().message;
  EXPECT_EQ(order, "abcabcabc");
  EXPECT_EQ(*all, (std::vector<std::vector<int>>{{4, 7}, {5, 8}, {6, 9}}));
}

TEST(Turns, NobodyHasNone) {
  const auto all = take_turns<double>(just(3), {});
  ASSERT_TRUE(all) << all.error().message;
  EXPECT_TRUE(all->empty());
  int runs = 0;
  const auto none =
      repeat<int>(just(0), [&]() -> Result<int> { return ++runs; });
  ASSERT_TRUE(none) << none.error().message;
  EXPECT_TRUE(none->empty());
  EXPECT_EQ(runs, 0);
}

TEST(Turns, AnErrorEndsThem) {
  for (const int fails : {1, 4}) {  // in the warm-up, and in a round
    int run = 0;
    const Turn<int> one = [&]() -> Result<int> {
      if (++run == fails) return invalid("gate", "it must run, found {}", run);
      return run;
    };
    const auto all = take_turns<int>(just(3, 1), {one, one});
    ASSERT_FALSE(all);
    EXPECT_EQ(all.error().message,
              "[gate] it must run, found " + std::to_string(fails));
    EXPECT_EQ(run, fails);
  }
}

TEST(Turns, GoOnWithinTheirTime) {
  const Rounds r{.least = 3, .most = 5, .seconds = 0.2, .limit = 1};
  EXPECT_TRUE(r.go_on(0, 9));    // at least one round
  EXPECT_TRUE(r.go_on(2, 0.9));  // `least` rounds, though the time is over
  EXPECT_FALSE(r.go_on(2, 1.1));
  EXPECT_FALSE(r.go_on(1, 1.1));
  EXPECT_TRUE(r.go_on(3, 0.1));
  EXPECT_FALSE(r.go_on(3, 0.3));
  EXPECT_TRUE(r.go_on(4, 0.1));
  EXPECT_FALSE(r.go_on(5, 0.1));
  const Rounds open{.seconds = 1e9};
  EXPECT_TRUE(open.go_on(1000000, 1));
  EXPECT_FALSE(just(2).go_on(2, 0));
  EXPECT_TRUE(just(2).go_on(1, 1e9));
}

TEST(Turns, OneAloneIsRepeated) {
  int run = 0;
  const auto all = repeat<int>(Rounds{.warm_up = 2, .most = 3, .seconds = 1e9},
                               [&]() -> Result<int> { return ++run; });
  ASSERT_TRUE(all) << all.error().message;
  EXPECT_EQ(*all, (std::vector<int>{3, 4, 5}));
}

}  // namespace
}  // namespace tessera
