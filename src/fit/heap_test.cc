// fit/heap_test.cc: tests the heap, and permutations on it.
#include "fit/heap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <random>

#include "fit/permutations.h"

namespace tessera::fit {
namespace {

int64_t bytes_of(const std::vector<MemoryPart>& parts, std::string_view name) {
  const auto part = std::ranges::find(parts, name, &MemoryPart::name);
  return part == parts.end() ? 0 : part->bytes;
}

TEST(Heap, TheSmallestGapThatHoldsIsTaken) {
  Heap heap;
  const Heap::Place large = heap.take("large", 30);
  heap.take("stays", 10);
  const Heap::Place small = heap.take("small", 20);
  heap.take("stays", 10);
  EXPECT_EQ(heap.reach(), 70);
  heap.give_back(large);
  heap.give_back(small);
  EXPECT_EQ(heap.take("fits both", 15), small);
  EXPECT_EQ(heap.take("fits one", 25), large);
  EXPECT_EQ(heap.take("fits none", 6), 70);
}

// Adjacent gaps join, others do not. Space behind the last array has no end.
TEST(Heap, GapsJoinWhereTheyMeet) {
  Heap heap;
  const Heap::Place first = heap.take("first", 10);
  const Heap::Place second = heap.take("second", 10);
  const Heap::Place last = heap.take("last", 10);
  heap.give_back(first);
  heap.give_back(last);
  EXPECT_EQ(heap.take("large", 20), last);
  EXPECT_EQ(heap.reach(), 40);
  heap.give_back(second);
  EXPECT_EQ(heap.take("joined", 20), first);
  EXPECT_EQ(heap.reach(), 40);
}

// The first of the smallest gaps that hold `bytes`, by a search of all gaps.
int64_t place_for(const std::map<int64_t, int64_t>& taken, int64_t bytes) {
  int64_t end = 0, smallest = std::numeric_limits<int64_t>::max(), place = -1;
  for (const auto& [begin, size] : taken) {
    if (begin - end >= bytes && begin - end < smallest) {
      smallest = begin - end;
      place = end;
    }
    end = begin + size;
  }
  return place < 0 ? end : place;
}

TEST(Heap, PlacesAreThoseOfASearchThroughAll) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    std::mt19937_64 random(seed);
    Heap heap;
    std::map<int64_t, int64_t> taken;
    for (int step = 0; step < 300; ++step) {
      const auto bytes = static_cast<int64_t>(random() % 40 + 1);
      if (random() % 5 < 2 && !taken.empty()) {
        const auto gone = std::next(
            taken.begin(), static_cast<int64_t>(random() % taken.size()));
        heap.give_back(gone->first);
        taken.erase(gone);
      } else if (random() % 8 == 0) {
        const int64_t end =
            taken.empty() ? 0 : taken.rbegin()->first + taken.rbegin()->second;
        ASSERT_EQ(heap.take_behind("a", bytes), end) << "seed " << seed;
        taken[end] = bytes;
      } else {
        const int64_t place = place_for(taken, bytes);
        ASSERT_EQ(heap.take("a", bytes), place) << "seed " << seed;
        taken[place] = bytes;
      }
    }
  }
}

TEST(Heap, TheFullestMomentHasItsArraysAndTheHoles) {
  Heap heap;
  const Heap::Place gone = heap.take("gone", 8);
  heap.take("a", 4);
  heap.take("b", 2);
  heap.give_back(gone);
  heap.take("a", 16);
  const Heap::Place later = heap.take("later", 5);  // in the gap
  heap.give_back(later);
  const auto parts = heap.fullest();
  EXPECT_EQ(bytes_of(parts, "a"), 20);
  EXPECT_EQ(bytes_of(parts, "b"), 2);
  EXPECT_EQ(bytes_of(parts, "holes"), 8);
  EXPECT_EQ(parts.size(), 3U);
  EXPECT_EQ(heap.reach(), 30);
}

TEST(Permutations, SoManyAreUnderWayAndTheOthersWait) {
  Heap heap;
  Permutations rounds(heap, "rounds of ");
  const auto start = [&](const char* array) {
    rounds.start({array, 10, heap.take("leaves", 10)});
  };
  for (int i = 0; i < 3; ++i) start("v");
  for (int i = 0; i < 3; ++i) start("k");
  EXPECT_TRUE(rounds.is_full());
  EXPECT_EQ(rounds.oldest(), "v");
  // Six buffers leave and five arrive; the sixth arrives once one has ended.
  EXPECT_EQ(heap.reach(), 110);
  rounds.end_oldest();
  EXPECT_EQ(heap.reach(), 110);
  EXPECT_EQ(bytes_of(heap.fullest(), "rounds of v"), 30);
  EXPECT_TRUE(rounds.is_full());
  rounds.end_all("v");
  EXPECT_FALSE(rounds.is_full());
  rounds.give_back("v");
  rounds.end_all("k");
  rounds.give_back("k");
  EXPECT_EQ(heap.take("all", 110), 0);
}

}  // namespace
}  // namespace tessera::fit
