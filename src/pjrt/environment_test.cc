// pjrt/environment_test.cc: libtpu's variables, and the user's own.
#include "pjrt/environment.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "base/threads.h"

namespace tessera::pjrt {
namespace {

std::string value(const Variables& variables, const std::string& name) {
  for (const auto& [n, v] : variables) {
    if (n == name) return v;
  }
  return "(none)";
}

TEST(TpuEnvironment, AsksNoServerAndDumpsWhenTold) {
  const auto plain = tpu_environment();
  ASSERT_TRUE(plain.ok());
  EXPECT_EQ(value(*plain, "TPU_SKIP_MDS_QUERY"), "1");
  EXPECT_EQ(value(*plain, "ALLOW_MULTIPLE_LIBTPU_LOAD"), "true");
  EXPECT_EQ(value(*plain, "LIBTPU_INIT_ARGS"), "(none)");
  const auto dumps = tpu_environment("/tmp");
  ASSERT_TRUE(dumps.ok());
  EXPECT_EQ(value(*dumps, "LIBTPU_INIT_ARGS"),
            "--xla_jf_dump_to=/tmp --xla_jf_dump_llo_text=true "
            "--xla_mosaic_enable_llo_source_annotations=true "
            "--xla_jf_dump_llo_pass_label_regex="
            "^(final_(bundles|hlo-static-per-bundle-utilization)|"
            "packed-bundles-post-ra)$");
}

TEST(TpuEnvironment, RefusesAFolderThatFlagsCannotName) {
  EXPECT_EQ(tpu_environment("/no/such/folder").error().message,
            "[pjrt] a dump folder must exist, found none for "
            "'/no/such/folder'");
  EXPECT_EQ(tpu_environment("/tmp/a b").error().message,
            "[pjrt] a dump folder must have no white space, quote or "
            "backslash in its name, found '/tmp/a b'");
}

TEST(TpuEnvironment, TheUsersValuesStay) {
  setenv("TESSERA_TEST_MINE", "mine", 1);
  unsetenv("TESSERA_TEST_NEW");
  set_missing({{"TESSERA_TEST_MINE", "ours"}, {"TESSERA_TEST_NEW", "ours"}});
  EXPECT_STREQ(std::getenv("TESSERA_TEST_MINE"), "mine");
  EXPECT_STREQ(std::getenv("TESSERA_TEST_NEW"), "ours");
  unsetenv("TESSERA_TEST_MINE");
  unsetenv("TESSERA_TEST_NEW");
}

TEST(TpuEnvironment, FlagsAreJoinedWithTheUsersLast) {
  const char* before = std::getenv("LIBTPU_INIT_ARGS");
  const std::string kept = before ? before : "";
  setenv("LIBTPU_INIT_ARGS", "--mine=1", 1);
  set_missing({{"LIBTPU_INIT_ARGS", "--ours=1"}});
  EXPECT_STREQ(std::getenv("LIBTPU_INIT_ARGS"), "--ours=1 --mine=1");
  // Our flags appear once, after any number of calls and for any folder.
  const std::string users[] = {"", "--mine=1",
                               "--xla_jf_dump_to=/mine --mine=1"};
  for (const std::string& mine : users) {
    setenv("LIBTPU_INIT_ARGS", mine.c_str(), 1);
    for (const char* folder : {"/tmp", "/tmp", "/", "/"}) {
      const auto dumps = tpu_environment(folder);
      ASSERT_TRUE(dumps.ok());
      set_missing(*dumps);
      EXPECT_EQ(
          std::getenv("LIBTPU_INIT_ARGS"),
          value(*dumps, "LIBTPU_INIT_ARGS") + (mine.empty() ? "" : " " + mine));
    }
  }
  before ? setenv("LIBTPU_INIT_ARGS", kept.c_str(), 1)
         : unsetenv("LIBTPU_INIT_ARGS");
}

TEST(RaiseThreads, GivesOneToEachDeviceBesideTheCores) {
  const char* before = std::getenv("NPROC");
  const std::string kept = before ? before : "";
  const std::string least = std::to_string(3 + machine_threads());
  unsetenv("NPROC");
  raise_threads(1);
  EXPECT_EQ(std::getenv("NPROC"), nullptr);
  for (const char* users : {"", "1", "-7", "many", "99999999999999999999"}) {
    setenv("NPROC", users, 1);
    raise_threads(3);
    EXPECT_EQ(std::getenv("NPROC"), least) << users;
  }
  setenv("NPROC", "999", 1);
  raise_threads(3);
  EXPECT_STREQ(std::getenv("NPROC"), "999");
  before ? setenv("NPROC", kept.c_str(), 1) : unsetenv("NPROC");
}

}  // namespace
}  // namespace tessera::pjrt
