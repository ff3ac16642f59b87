// Tasks that run out of memory.
#include "route/tasks.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace tessera::routing {
namespace {

TEST(RouteTasks, NoMemoryIsTheCallersToTell) {
  for (const int threads : {1, 3}) {
    std::vector<std::atomic<int>> ran(50);
    const auto work = [&](int64_t task, int) {
      if (task == 20) throw std::bad_alloc();
      ++ran[static_cast<size_t>(task)];
    };
    EXPECT_THROW(run_tasks(50, threads, work, "tasks"), std::bad_alloc);
    for (int64_t task = 0; task < 20; ++task) {
      EXPECT_EQ(ran[static_cast<size_t>(task)], 1) << task;
    }
    EXPECT_EQ(ran[20], 0);
  }
}

TEST(RouteTasks, EndWhereTheCallerSaysSo) {
  for (const int threads : {1, 3}) {
    std::atomic<int> ran{0};
    int asked = 0;
    const auto stopped = [&] { return ++asked == 4; };
    const auto work = [&](int64_t, int) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      ++ran;
    };
    EXPECT_FALSE(run_tasks(1000, threads, work, "tasks", stopped));
    EXPECT_EQ(asked, 4);
    EXPECT_LT(ran, 1000);
    ran = 0;
    EXPECT_TRUE(run_tasks(50, threads, work, "tasks", [] { return false; }));
    EXPECT_EQ(ran, 50);
  }
}

}  // namespace
}  // namespace tessera::routing
