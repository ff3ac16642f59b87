// bench/harness/peak/peak.cc: runs the loops on all threads and keeps the best
// time.
#include "bench/harness/peak/peak.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>

#include "base/isa.h"
#include "base/threads.h"
#include "bench/harness/peak/loops.h"

namespace tessera::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kBufferBytes = size_t{512} << 20;  // larger than any cache
constexpr size_t kPieceBytes = size_t{2} << 20;
constexpr double kSample = 0.005;  // seconds, at least
constexpr double kLoopTime = 0.25;
constexpr double kReadTime = 0.3;

template <class Work>
double seconds(Work work) {
  const auto start = Clock::now();
  work();
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Each thread runs the loop once in a sample.
double gflops(const Loop& loop, int threads) {
  if (loop.run == nullptr) return 0;
  std::atomic<float> sink{0};
  const auto sample = [&](int64_t rounds) {
    return seconds([&] {
      parallel_for(threads, threads,
                   [&](int64_t, int) { sink = loop.run(rounds); });
    });
  };
  int64_t rounds = 1 << 8;
  while (sample(rounds) < kSample) rounds *= 2;
  double best = 0;
  const auto start = Clock::now();
  do {
    const double done = loop.operations * static_cast<double>(rounds) * threads;
    best = std::max(best, done / sample(rounds) / 1e9);
  } while (std::chrono::duration<double>(Clock::now() - start).count() <
           kLoopTime);
  return best;
}

double gbytes(int threads) {
  // Not cleared here: the threads below write each page first.
  const std::unique_ptr<std::byte[]> buffer(new (std::nothrow)
                                                std::byte[kBufferBytes]);
  if (buffer == nullptr) return 0;
  constexpr auto kPieces = static_cast<int64_t>(kBufferBytes / kPieceBytes);
  const auto piece = [&](int64_t task) {
    return buffer.get() + static_cast<size_t>(task) * kPieceBytes;
  };
  parallel_for(kPieces, threads, [&](int64_t task, int) {
    std::memset(piece(task), 1, kPieceBytes);
  });
  std::atomic<uint64_t> sink{0};
  double best = 0;
  const auto start = Clock::now();
  do {
    const double time = seconds([&] {
      parallel_for(kPieces, threads, [&](int64_t task, int) {
        sink += read_all(piece(task), kPieceBytes);
      });
    });
    best = std::max(best, static_cast<double>(kBufferBytes) / time / 1e9);
  } while (std::chrono::duration<double>(Clock::now() - start).count() <
           kReadTime);
  return best;
}

}  // namespace

Peaks measure_products(Isa isa, int threads) {
  threads = std::clamp(threads, 1, kMaxThreads);
  return {gflops(fma_loop(isa), threads), gflops(bf16_dot_loop(isa), threads),
          0};
}

Peaks measure_peaks(int threads) {
  Peaks peaks = measure_products(machine_isas().back(), threads);
  peaks.read_gbytes = gbytes(std::clamp(threads, 1, kMaxThreads));
  return peaks;
}

}  // namespace tessera::bench
