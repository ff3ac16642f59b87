// bench/harness/peak/peak_test.cc: the loops make the operations that are
// counted. Their speed is not tested.
#include "bench/harness/peak/peak.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bench/harness/peak/loops.h"

namespace tessera::bench {
namespace {

TEST(PeakLoops, EveryFmaIsDone) {
  for (const Isa isa : machine_isas()) {
    const Loop loop = fma_loop(isa);
    ASSERT_NE(loop.run, nullptr);
    // A round adds 1e-30 to each chain and lane; the portable loop sums lanes.
    const double lanes = isa == Isa::portable ? 4 : 1;
    const double chains = loop.operations / 2 /
                          (isa == Isa::portable ? 4
                           : isa == Isa::avx2   ? 8
                                                : 16);
    for (const int64_t rounds : {0, 1, 7, 1000}) {
      const double want = static_cast<double>(rounds) * chains * lanes * 1e-30;
      // One float32 rounding in each round, and some in the sum of all chains.
      const double roundings = static_cast<double>(rounds) + 64;
      EXPECT_NEAR(loop.run(rounds), want, want * roundings * 0x1p-24)
          << to_string(isa) << " " << rounds;
    }
  }
}

TEST(PeakLoops, EveryDotIsDone) {
  for (const Isa isa : machine_isas()) {
    const Loop loop = bf16_dot_loop(isa);
    EXPECT_EQ(loop.run != nullptr, isa >= Isa::avx512bf16);
    if (loop.run == nullptr) continue;
    // The products and lanes of one instruction; a tile has more of both.
    const double products = isa == Isa::amx ? 32 : 2;
    const double lanes = isa == Isa::amx ? 256 : 16;
    const double chains = loop.operations / 2 / (products * lanes);
    for (const int64_t rounds : {0, 1, 7, 1000}) {
      EXPECT_EQ(loop.run(rounds),
                static_cast<double>(rounds) * chains * products);
    }
  }
}

TEST(PeakLoops, EveryByteIsRead) {
  std::vector<uint64_t> words(size_t{1} << 13);
  for (size_t i = 0; i < words.size(); ++i) words[i] = i * i * 2654435761u;
  for (const size_t count : {size_t{64}, size_t{1024}, words.size()}) {
    uint64_t want = 0;
    for (size_t i = 0; i < count; ++i) want += words[i];
    EXPECT_EQ(read_all(reinterpret_cast<const std::byte*>(words.data()),
                       count * sizeof(uint64_t)),
              want);
  }
}

TEST(Peaks, AreThereWhereTheMachineHasThem) {
  const Peaks peaks = measure_peaks(2);
  EXPECT_GT(peaks.fma_gflops, 0);
  EXPECT_GT(peaks.read_gbytes, 0);
  EXPECT_EQ(peaks.bf16_dot_gflops > 0,
            machine_isas().back() >= Isa::avx512bf16);
}

}  // namespace
}  // namespace tessera::bench
