// base/threads_test.cc: the pool, under the thread sanitizer.
#include "base/threads.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <set>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <sched.h>
#endif

namespace tessera {
namespace {

using Counters = std::vector<std::atomic<int>>;

// Keeps a core busy without a clock.
void spend(unsigned rounds) {
  std::atomic<unsigned> left{rounds};
  while (left.load() > 0) --left;
}

TEST(ParallelFor, RunsEveryTaskOnceWithWorkersBelowThreads) {
  for (const int threads : {-1, 0, 1, 2, 3, 5, 8}) {
    for (const int64_t tasks : {-1, 0, 1, 2, 3, 7, 64, 1000}) {
      Counters runs(static_cast<size_t>(std::max<int64_t>(tasks, 0)));
      std::atomic<int> strangers{0};
      parallel_for(tasks, threads, [&](int64_t task, int worker) {
        ++runs[static_cast<size_t>(task)];
        if (worker < 0 || worker >= std::max(1, threads)) ++strangers;
      });
      EXPECT_EQ(strangers, 0);
      for (size_t t = 0; t < runs.size(); ++t) {
        EXPECT_EQ(runs[t], 1) << t << " of " << tasks << " on " << threads;
      }
    }
  }
}

// Plain memory: the thread sanitizer reports a race if a call does not order
// accesses.
TEST(ParallelFor, OrdersWhatIsWrittenBeforeInsideAndAfter) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    const int threads = 2 + static_cast<int>(random() % 4);
    const size_t tasks = random() % 40;
    std::vector<int> in(tasks);
    for (size_t t = 0; t < tasks; ++t) in[t] = static_cast<int>(random() % 100);
    std::vector<int> out(tasks, -1);
    std::vector<int64_t> sums(static_cast<size_t>(threads));  // per worker
    parallel_for(static_cast<int64_t>(tasks), threads,
                 [&](int64_t task, int worker) {
                   const auto t = static_cast<size_t>(task);
                   out[t] = in[t];
                   sums[static_cast<size_t>(worker)] += in[t];
                 });
    EXPECT_EQ(out, in);
    int64_t want = 0;
    int64_t found = 0;
    for (const int v : in) want += v;
    for (const int64_t v : sums) found += v;
    EXPECT_EQ(found, want);
  }
}

TEST(ParallelFor, ATaskMayWaitForLowerOnes) {
  for (const int threads : {1, 2, 3, 6}) {
    constexpr int64_t kTasks = 300;
    Counters done(kTasks);
    std::vector<int64_t> order;  // the waiting orders all accesses
    parallel_for(kTasks, threads, [&](int64_t task, int) {
      const auto t = static_cast<size_t>(task);
      if (t > 0) {
        while (done[t - 1].load() == 0) std::this_thread::yield();
      }
      order.push_back(task);
      done[t] = 1;
    });
    ASSERT_EQ(order.size(), size_t{kTasks});
    for (size_t t = 0; t < order.size(); ++t) {
      EXPECT_EQ(order[t], static_cast<int64_t>(t));
    }
  }
}

// Each task waits until as many run at once as there should be threads.
int threads_at_once(int threads) {
  std::atomic<int> running{0};
  std::vector<std::thread::id> ids(static_cast<size_t>(threads));
  parallel_for(threads, threads, [&](int64_t, int worker) {
    ids[static_cast<size_t>(worker)] = std::this_thread::get_id();
    ++running;
    while (running.load() < threads) std::this_thread::yield();
  });
  return static_cast<int>(std::set(ids.begin(), ids.end()).size());
}

TEST(ParallelFor, GrowsAndKeepsItsWorkers) {
  for (const int threads : {2, 5, 3, 9, 2}) {
    EXPECT_EQ(threads_at_once(threads), threads);
  }
}

TEST(ParallelFor, TheCallerIsWorkerZero) {
  const auto me = std::this_thread::get_id();
  std::atomic<int> wrong{0};
  parallel_for(500, 4, [&](int64_t, int worker) {
    if ((worker == 0) != (std::this_thread::get_id() == me)) ++wrong;
    spend(50);
  });
  EXPECT_EQ(wrong, 0);
}

TEST(ParallelFor, NestedCallsRunInlineInOrder) {
  constexpr int64_t kOuter = 20;
  constexpr int64_t kInner = 30;
  std::vector<std::vector<int64_t>> order(kOuter);
  std::atomic<int> elsewhere{0};
  parallel_for(kOuter, 3, [&](int64_t outer, int) {
    const auto me = std::this_thread::get_id();
    auto& mine = order[static_cast<size_t>(outer)];
    parallel_for(kInner, 3, [&](int64_t inner, int worker) {
      if (worker != 0 || std::this_thread::get_id() != me) ++elsewhere;
      mine.push_back(inner);
    });
  });
  EXPECT_EQ(elsewhere, 0);
  for (const auto& mine : order) {
    ASSERT_EQ(mine.size(), size_t{kInner});
    for (size_t i = 0; i < mine.size(); ++i) {
      EXPECT_EQ(mine[i], static_cast<int64_t>(i));
    }
  }
}

TEST(ParallelFor, NestedInACallThatRunsAloneIsInlineToo) {
  const auto me = std::this_thread::get_id();
  std::atomic<int> elsewhere{0};
  parallel_for(1, 4, [&](int64_t, int) {
    parallel_for(200, 4, [&](int64_t, int worker) {
      if (worker != 0 || std::this_thread::get_id() != me) ++elsewhere;
      spend(50);
    });
  });
  EXPECT_EQ(elsewhere, 0);
}

TEST(ParallelFor, AfterANestedCallThePoolIsFreeAgain) {
  parallel_for(4, 2,
               [](int64_t, int) { parallel_for(4, 2, [](int64_t, int) {}); });
  EXPECT_EQ(threads_at_once(3), 3);
}

// The first host thread holds the pool until the second has run alone.
TEST(ParallelFor, ASecondHostThreadRunsAloneAndNeverWaits) {
  std::atomic<bool> first_runs{false};
  std::atomic<bool> second_done{false};
  std::thread first([&] {
    parallel_for(2, 2, [&](int64_t, int) {
      first_runs = true;
      while (!second_done.load()) std::this_thread::yield();
    });
  });
  while (!first_runs.load()) std::this_thread::yield();
  const auto me = std::this_thread::get_id();
  int64_t tasks = 0;  // one thread: no atomic needed
  bool alone = true;
  parallel_for(100, 4, [&](int64_t task, int worker) {
    alone &= worker == 0 && std::this_thread::get_id() == me && task == tasks;
    ++tasks;
  });
  second_done = true;
  first.join();
  EXPECT_EQ(tasks, 100);
  EXPECT_TRUE(alone);
}

TEST(ParallelFor, ManyHostThreadsAtOnce) {
  constexpr int kHosts = 4;
  std::vector<int64_t> sums(kHosts);
  std::vector<std::thread> hosts;
  for (size_t h = 0; h < kHosts; ++h) {
    hosts.emplace_back([&sums, h] {
      for (int round = 0; round < 200; ++round) {
        std::vector<int64_t> part(3);
        parallel_for(25, 3, [&](int64_t task, int worker) {
          part[static_cast<size_t>(worker)] += task;
        });
        sums[h] += part[0] + part[1] + part[2];
      }
    });
  }
  for (auto& host : hosts) host.join();
  for (const int64_t sum : sums) EXPECT_EQ(sum, 200 * 300);
}

// Calls at varying intervals: workers spin, are late, sleep, are called off.
TEST(ParallelFor, CallsFollowEachOtherInAnyRhythm) {
  std::mt19937 random(3);
  for (int round = 0; round < 400; ++round) {
    const int64_t tasks = 1 + random() % 6;
    std::vector<int> out(static_cast<size_t>(tasks));
    const unsigned rounds = random() % 300;
    parallel_for(tasks, 4, [&](int64_t task, int) {
      spend(rounds);
      out[static_cast<size_t>(task)] = round + 1;
    });
    for (const int v : out) EXPECT_EQ(v, round + 1);
    if (round % 16 == 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  }
}

TEST(ParallelFor, TakesCallablesOfEveryKind) {
  int64_t sum = 0;
  const auto fixed = [&sum](int64_t task, int) { sum += task; };
  auto owner = [&sum, by = std::make_unique<int64_t>(2)](int64_t task, int) {
    sum += task * *by;
  };
  parallel_for(4, 1, fixed);
  parallel_for(4, 1, owner);  // not copied
  const Task task = fixed;
  parallel_for(4, 1, task);
  EXPECT_EQ(sum, 6 + 12 + 6);
}

TEST(MachineThreads, AreThoseOfTheAffinity) {
  EXPECT_GE(machine_threads(), 1);
#if defined(__linux__)
  cpu_set_t before;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  EXPECT_EQ(machine_threads(), CPU_COUNT(&before));
  cpu_set_t one;
  CPU_ZERO(&one);
  for (int core = 0; CPU_COUNT(&one) == 0; ++core) {
    if (CPU_ISSET(core, &before)) CPU_SET(core, &one);
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(machine_threads(), 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
#endif
}

}  // namespace
}  // namespace tessera
