// Tasks that find no memory.
#include "route/tasks.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace tessera::routing
