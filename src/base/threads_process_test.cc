// base/threads_process_test.cc: the pool with fork, with exit and if threads
// are refused. Separate from threads_test.cc because the thread sanitizer
// refuses threads after a fork.
#include <dirent.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "base/threads.h"

namespace tessera {
namespace {

bool works(int threads) {
  std::atomic<int64_t> sum{0};
  parallel_for(100, threads, [&](int64_t task, int) { sum += task; });
  return sum == 4950;
}

// Whether `threads` really run at once.
bool runs_at_once(int threads) {
  std::atomic<int> running{0};
  std::atomic<int> most{0};
  parallel_for(threads, threads, [&](int64_t, int) {
    ++running;
    for (int i = 0; i < 200000 && running.load() < threads; ++i) {
      std::this_thread::yield();
    }
    most = running.load();
  });
  return most == threads;
}

// Runs `body` in a child. Returns its exit status, or -1 if a signal ended it.
template <class Body>
int in_child(Body body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) body();  // ends the process
  int status = 0;
  if (waitpid(child, &status, 0) != child || !WIFEXITED(status)) return -1;
  return WEXITSTATUS(status);
}

int count_threads() {
  int count = 0;
  DIR* folder = opendir("/proc/self/task");
  if (folder == nullptr) return -1;
  while (const dirent* entry = readdir(folder))
    count += entry->d_name[0] != '.';
  closedir(folder);
  return count;
}

bool counts_at_exit = false;

// Runs after the destructors of all static objects.
__attribute__((destructor)) void count_at_exit() {
  if (counts_at_exit) _exit(count_threads());
}

TEST(ParallelForProcess, AForkedChildMakesItsOwnPool) {
  // All threads run at once, so that none is just being started: under a
  // sanitizer, locks held at that time would stay locked in the child.
  EXPECT_TRUE(works(3) && runs_at_once(3));
  EXPECT_EQ(in_child([] {
              alarm(20);  // a hang must fail
              const bool fine = works(3) && runs_at_once(3);
              const int grandchild =
                  in_child([] { _exit(works(3) && runs_at_once(2) ? 0 : 1); });
              _exit(fine && grandchild == 0 ? 0 : 1);
            }),
            0);
  EXPECT_TRUE(works(3));
}

TEST(ParallelForProcess, AChildForkedWhileThePoolIsBusyWorks) {
  std::atomic<bool> busy{false};
  std::atomic<bool> forked{false};
  std::thread host([&] {
    parallel_for(2, 2, [&](int64_t, int) {
      busy = true;
      while (!forked.load()) std::this_thread::yield();
    });
  });
  while (!busy.load()) std::this_thread::yield();
  EXPECT_EQ(in_child([] {
              alarm(20);
              _exit(works(3) && runs_at_once(3) ? 0 : 1);
            }),
            0);
  forked = true;
  host.join();
}

TEST(ParallelForProcess, NoThreadIsLeftAtExit) {
  EXPECT_EQ(in_child([] {
              alarm(20);
              counts_at_exit = works(4) && runs_at_once(4);
              if (counts_at_exit && count_threads() != 4) _exit(77);
              exit(99);
            }),
            1);
}

TEST(ParallelForProcess, ExitFromInsideATaskEndsTheProcess) {
  EXPECT_EQ(in_child([] {
              alarm(20);
              parallel_for(2, 2, [](int64_t task, int) {
                if (task == 1) exit(42);
                for (;;) pause();
              });
              _exit(1);
            }),
            42);
}

// Sanitizers end the process if memory for a thread is refused.
#ifndef TESSERA_SANITIZED
TEST(ParallelForProcess, GoesOnWithTheThreadsItGets) {
  constexpr int kMany = 60;
  for (const bool refuse : {false, true}) {
    EXPECT_EQ(in_child([&] {
                alarm(20);
                // No address space for stacks, except for a few cached ones.
                const rlimit none{0, 0};
                if (refuse && setrlimit(RLIMIT_AS, &none) != 0) _exit(2);
                const bool all_run = works(kMany) && works(3);
                const bool all_there = count_threads() == kMany;
                _exit(all_run && all_there != refuse ? 0 : 1);
              }),
              0);
  }
}
#endif

TEST(ParallelForProcess, WorkersLeaveSignalsToTheHost) {
  std::atomic<int> open{0};
  parallel_for(3, 3, [&](int64_t, int worker) {
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, nullptr, &mask);
    if (worker != 0 && sigismember(&mask, SIGINT) != 1) ++open;
  });
  EXPECT_EQ(open, 0);
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, nullptr, &mask);
  EXPECT_EQ(sigismember(&mask, SIGINT), 0);
}

TEST(ParallelForProcess, ATaskThatThrowsEndsTheProcess) {
  EXPECT_EQ(in_child([] {
              std::set_terminate([] { _exit(55); });
              parallel_for(2, 2, [](int64_t, int) { throw 1; });
              _exit(1);
            }),
            55);
}

}  // namespace
}  // namespace tessera
