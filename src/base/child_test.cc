// base/child_test.cc: the ways in which other programs end.
#include "base/child.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <cstdlib>
#include <thread>

namespace tessera {
namespace {

Result<ChildRun> shell(const std::string& script, double limit) {
  return run_child({"sh", "-c", script}, {{"TESSERA_WORD", "said"}}, limit);
}

TEST(Child, OutputErrorAndCodeComeBack) {
  const auto run = shell("echo $TESSERA_WORD; echo loud >&2; cat; exit 3", 30);
  ASSERT_TRUE(run.ok()) << run.error().message;
  EXPECT_EQ(run->out, "said\n");  // and cat read nothing
  EXPECT_EQ(run->err, "loud\n");
  EXPECT_EQ(run->exit_code, 3);
  EXPECT_FALSE(run->timed_out);
}

TEST(Child, MoreThanAPipeHoldsIsRead) {
  const auto run = shell("head -c 1000000 /dev/zero; echo done >&2", 30);
  ASSERT_TRUE(run.ok());
  EXPECT_EQ(run->out.size(), 1000000u);
  EXPECT_EQ(run->err, "done\n");
}

TEST(Child, OneThatHangsIsKilledAndWhatItSaidIsKept) {
  const auto run = shell("echo before; sleep 60; echo after", 0.3);
  ASSERT_TRUE(run.ok());
  EXPECT_TRUE(run->timed_out);
  EXPECT_EQ(run->out, "before\n");
  EXPECT_LT(run->seconds, 30);
}

TEST(Child, OneThatKeepsTalkingIsKilledToo) {
  const auto run = shell("while :; do echo again; done", 0.3);
  ASSERT_TRUE(run.ok());
  EXPECT_TRUE(run->timed_out);
  EXPECT_LT(run->seconds, 30);
}

TEST(Child, WhatItStartedGoesWithIt) {
  // The grandchild holds the pipe open; run_child() does not wait for it.
  const auto run = shell("sleep 60 & echo $!", 30);
  ASSERT_TRUE(run.ok());
  EXPECT_FALSE(run->timed_out);
  EXPECT_LT(run->seconds, 20);
  const auto grandchild = static_cast<pid_t>(std::atoi(run->out.c_str()));
  ASSERT_GT(grandchild, 1);
  bool gone = false;
  for (int i = 0; i < 100 && !gone; ++i) {
    gone = kill(grandchild, 0) != 0;
    // A zombie that is not reaped counts as gone.
    if (!gone) {
      const auto state = shell("ps -o stat= -p " + run->out, 30);
      gone = state.ok() && state->out.starts_with("Z");
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  EXPECT_TRUE(gone);
}

TEST(Child, OneThatIsNotThereSaysSo) {
  const auto run = run_child({"/no/such/program"}, {}, 30);
  ASSERT_TRUE(run.ok());
  EXPECT_EQ(run->exit_code, 127);
  EXPECT_EQ(run->err, "No such file or directory");
}

}  // namespace
}  // namespace tessera
