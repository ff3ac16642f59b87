// pjrt/locate_test.cc: which interpreters are asked for a plugin, and what they
// answer.
#include "pjrt/locate.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

namespace tessera::pjrt {
namespace {

namespace fs = std::filesystem;

// The interpreters are shell scripts that answer with their own name.
class FindPlugin : public ::testing::Test {
 protected:
  FindPlugin() {
    for (const char* name : kVariables) {
      const char* value = std::getenv(name);
      if (value) before_[name] = value;
      unsetenv(name);
    }
    fs::create_directories(folder_ + "/venv/bin");
    fs::create_directories(folder_ + "/path");
  }
  ~FindPlugin() override {
    for (const char* name : kVariables) {
      unsetenv(name);
      if (before_.count(name)) setenv(name, before_[name].c_str(), 1);
    }
    fs::remove_all(folder_);
  }

  std::string script(const std::string& name, const std::string& text) {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path) << "#!/bin/sh\n" << text << "\n";
    chmod(path.c_str(), 0755);
    return path;
  }

  static constexpr const char* kVariables[] = {
      "TESSERA_PYTHON", "VIRTUAL_ENV",         "PATH",
      "PYTHONPATH",     "TESSERA_PJRT_LIBTPU", "TESSERA_PJRT_XLA_CPU_PJRT"};
  const std::string folder_ =
      ::testing::TempDir() + "tessera_locate_" + std::to_string(getpid());
  std::map<std::string, std::string> before_;
};

// docs/train.md tells what was seen with several devices of the first plugin.
TEST_F(FindPlugin, SeveralDevicesOfACpuHaveAnotherDefault) {
  EXPECT_EQ(cpu_plugin(""), "xla_cpu_pjrt");
  for (const int64_t devices : {2, 3, 64}) {
    EXPECT_EQ(cpu_plugin("", devices), "lammps_jax_pjrt_cpu");
    EXPECT_EQ(cpu_plugin("xla_cpu_pjrt", devices), "xla_cpu_pjrt");
  }
  const auto known = known_plugins();
  for (const int64_t devices : {1, 2}) {
    EXPECT_TRUE(std::any_of(known.begin(), known.end(), [&](const auto& k) {
      return k.name == default_cpu_plugin(devices);
    }));
  }
}

TEST_F(FindPlugin, APathIsItself) {
  EXPECT_EQ(*find_plugin("/a/b"), "/a/b");
  EXPECT_EQ(*find_plugin("mine.so"), "mine.so");
}

TEST_F(FindPlugin, AnUnknownNameIsRefused) {
  EXPECT_EQ(find_plugin("libgpu").error().message,
            "[pjrt] a plugin must be a path or one of libtpu, xla_cpu_pjrt, "
            "lammps_jax_pjrt_cpu, found 'libgpu'");
  EXPECT_FALSE(find_plugin("").ok());
}

TEST_F(FindPlugin, ItsVariableComesFirst) {
  setenv("TESSERA_PJRT_LIBTPU", "/mine/libtpu.so", 1);
  setenv("TESSERA_PYTHON", script("python", "echo no").c_str(), 1);
  EXPECT_EQ(*find_plugin("libtpu"), "/mine/libtpu.so");
}

TEST_F(FindPlugin, PythonsAreAskedInTheirOrder) {
  const std::string shell = "/usr/bin:/bin";
  setenv("PATH", (folder_ + "/path:" + shell).c_str(), 1);
  script("path/python3", "printf on_path");
  EXPECT_EQ(*find_plugin("libtpu"), "on_path");
  setenv("VIRTUAL_ENV", (folder_ + "/venv").c_str(), 1);
  EXPECT_EQ(*find_plugin("libtpu"), "on_path");  // there is no venv/bin/python
  script("venv/bin/python", "printf in_venv");
  EXPECT_EQ(*find_plugin("libtpu"), "in_venv");
  setenv("TESSERA_PYTHON", script("named", "printf named").c_str(), 1);
  EXPECT_EQ(*find_plugin("libtpu"), "named");
}

TEST_F(FindPlugin, AnErrorSaysWhoWasAskedAndWhatTheySaid) {
  const std::string named =
      script("named", "echo one >&2; echo two >&2; exit 3");
  setenv("TESSERA_PYTHON", named.c_str(), 1);
  setenv("VIRTUAL_ENV", (folder_ + "/venv").c_str(), 1);  // not asked
  script("venv/bin/python", "printf in_venv");
  const auto failed = find_plugin("libtpu");
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().kind, ErrorKind::unavailable);
  EXPECT_TRUE(
      failed.error().message.ends_with(", found '" + named + "': exit 3 'two'"))
      << failed.error().message;
  setenv("TESSERA_PYTHON", script("named", "").c_str(), 1);
  EXPECT_TRUE(find_plugin("libtpu").error().message.ends_with(
      "'" + named + "': no such package"));
}

// A real Python, and packages that must not run.
TEST_F(FindPlugin, PythonFindsAPackageAndDoesNotImportIt) {
  setenv("PATH", before_["PATH"].c_str(), 1);
  if (std::system("python3 -c pass >/dev/null 2>&1") != 0) {
    GTEST_SKIP() << "no python3 here";
  }
  const auto package = [&](const std::string& in) {
    fs::create_directories(folder_ + "/" + in + "/libtpu");
    std::ofstream(folder_ + "/" + in + "/libtpu/__init__.py")
        << "open('" << folder_ << "/imported', 'w')\n";
    std::ofstream(folder_ + "/" + in + "/libtpu/libtpu.so") << "x";
  };
  package("site");
  package("here");
  setenv("PYTHONPATH", (folder_ + "/site").c_str(), 1);
  EXPECT_EQ(*find_plugin("libtpu"), folder_ + "/site/libtpu/libtpu.so");

  // A package in the current folder is not an installed one.
  setenv("PYTHONPATH", "", 1);
  const fs::path back = fs::current_path();
  fs::current_path(folder_ + "/here");
  const auto local = find_plugin("libtpu");
  fs::current_path(back);
  if (local.ok()) {
    EXPECT_EQ(local->find(folder_), std::string::npos) << *local;
  }
  EXPECT_FALSE(fs::exists(folder_ + "/imported"));
}

}  // namespace
}  // namespace tessera::pjrt
