// pjrt/plugin_test.cc: files that are no plugin, and plugins of another
// version.
#include "pjrt/plugin.h"

#include <elf.h>
#include <gtest/gtest.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <thread>
#include <vector>

#include "base/files.h"
#include "pjrt/compile.h"
#include "tests/plugins.h"

namespace tessera::pjrt {
namespace {

using tessera::testing::counted;
using tessera::testing::fake_plugin;

class PjrtPlugin : public ::testing::Test {
 protected:
  void SetUp() override {
    TESSERA_NEEDS_PLUGINS();
    std::filesystem::create_directories(folder_);
  }
  ~PjrtPlugin() override { std::filesystem::remove_all(folder_); }

  static std::string refusal(const std::string& path) {
    const auto plugin = load_plugin(path);
    return plugin ? "it loaded" : plugin.error().message;
  }

  const std::string folder_ =
      ::testing::TempDir() + "tessera_plugin_" + std::to_string(getpid());
};

TEST_F(PjrtPlugin, WhatIsNoLibraryIsRefused) {
  const std::string rule = "[pjrt] a plugin must be a shared library, found ";
  EXPECT_EQ(refusal("/no/such.so"), rule + "no file for '/no/such.so'");
  EXPECT_EQ(refusal(folder_), rule + "a directory for '" + folder_ + "'");
  EXPECT_EQ(refusal(""), rule + "no path for ''");
  EXPECT_EQ(refusal(std::string("a\0b.so", 6)),
            rule + "no path for 'a\\x00b.so'");
  EXPECT_EQ(refusal("/dev/null"), rule + "a device or pipe for '/dev/null'");
  const std::string text = folder_ + "/text.so";
  ASSERT_TRUE(write_file(text, "not a library").ok());
  EXPECT_EQ(refusal(text), rule + "another kind of file for '" + text + "'");
}

// The end of the last segment that the loader maps.
size_t mapped_end(const std::string& library) {
  ElfW(Ehdr) header;
  std::memcpy(&header, library.data(), sizeof header);
  size_t end = 0;
  for (int i = 0; i < header.e_phnum; ++i) {
    ElfW(Phdr) part;
    std::memcpy(&part, &library[header.e_phoff + i * sizeof part], sizeof part);
    if (part.p_type != PT_LOAD) continue;
    end = std::max<size_t>(end, part.p_offset + part.p_filesz);
  }
  return end;
}

// The loader would crash on a file whose headers promise more than it holds.
TEST_F(PjrtPlugin, ATruncatedLibraryIsRefused) {
  const auto whole = read_file(fake_plugin("odd"), 1 << 26);
  ASSERT_TRUE(whole.ok());
  const size_t end = mapped_end(*whole);
  ASSERT_GT(end, 4096u);
  const std::string path = folder_ + "/cut.so";
  for (const size_t size : {size_t{0}, size_t{10}, size_t{63}, size_t{200},
                            size_t{4096}, end / 2, end - 1}) {
    ASSERT_TRUE(write_file(path, whole->substr(0, size)).ok());
    const std::string said = refusal(path);
    EXPECT_EQ(said, "[pjrt] a plugin must be a shared library, found " +
                        std::string(size < 64 ? "another kind of file"
                                              : "a file cut short") +
                        " for '" + path + "'")
        << size;
  }
}

TEST_F(PjrtPlugin, ApisThatAreNotOursAreRefused) {
  const auto expect = [](const std::string& name, const std::string& found) {
    const std::string path = fake_plugin(name);
    const std::string said = refusal(path);
    const std::string rule = "[pjrt] a plugin must have the PJRT C API 0.x, ";
    EXPECT_TRUE(said.starts_with(rule + "found " + found + " for ")) << said;
  };
  expect("no_symbol", "no function GetPjrtApi");
  expect("null_api", "that GetPjrtApi gives none");
  expect("newer_major", "1.2");
  expect("tiny", "a struct too small for a version");
  expect("no_errors", "a struct without the functions of errors");
}

TEST_F(PjrtPlugin, OneThatFailsIsAskedOnceAndItsErrorIsFreed) {
  const std::string path = fake_plugin("fails");
  for (int i = 0; i < 3; ++i) {
    const auto plugin = load_plugin(path);
    ASSERT_FALSE(plugin.ok());
    EXPECT_EQ(plugin.error().kind, ErrorKind::unavailable);
    EXPECT_TRUE(plugin.error().message.starts_with(
        "[pjrt] a plugin must initialize, found UNAVAILABLE: 'no device, asked "
        "1; more' for "))
        << plugin.error().message;
  }
  EXPECT_EQ(counted(path, "fake_errors_alive"), 0);
}

TEST_F(PjrtPlugin, TheSameFileIsTheSamePlugin) {
  const std::string path = fake_plugin("odd");
  const std::string link = folder_ + "/link.so";
  std::filesystem::create_symlink(std::filesystem::absolute(path), link);
  std::vector<const Plugin*> found(8);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < found.size(); ++i) {
    threads.emplace_back([&, i] {
      const auto plugin = load_plugin(i % 2 ? path : link);
      if (plugin) found[i] = *plugin;
    });
  }
  for (std::thread& t : threads) t.join();
  ASSERT_NE(found[0], nullptr);
  for (const Plugin* plugin : found) EXPECT_EQ(plugin, found[0]);
}

TEST_F(PjrtPlugin, AFunctionPastTheStructIsNotCalled) {
  const auto plugin = load_plugin(fake_plugin("old"));
  ASSERT_TRUE(plugin.ok()) << plugin.error().message;
  const auto topology = make_topology(**plugin, "any");
  ASSERT_TRUE(topology.ok()) << topology.error().message;
  const auto executable = compile(*topology, "module {}");
  ASSERT_FALSE(executable.ok());
  EXPECT_EQ(executable.error().kind, ErrorKind::unavailable);
  EXPECT_EQ(executable.error().message,
            "[pjrt] the program must compile, found a plugin without "
            "PJRT_Compile for any");
}

TEST_F(PjrtPlugin, OneOfAnotherAgeIsReadAsFarAsItGoes) {
  const std::string path = fake_plugin("odd");
  const auto plugin = load_plugin(path);
  ASSERT_TRUE(plugin.ok()) << plugin.error().message;
  EXPECT_GE((*plugin)->minor_version(), 100);
  const auto bad = make_topology(**plugin, "bad");
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.error().kind, ErrorKind::invalid);
  EXPECT_TRUE(bad.error().message.ends_with(
      "found INVALID_ARGUMENT: 'no target bad' for 'bad'"))
      << bad.error().message;
  {
    const auto topology = make_topology(**plugin, "good");
    ASSERT_TRUE(topology.ok()) << topology.error().message;
    EXPECT_TRUE(topology->devices().empty());
    EXPECT_EQ(compile(*topology, "large").error().kind, ErrorKind::limit);
    const auto executable = compile(*topology, "text", {2, 1, false, false});
    ASSERT_TRUE(executable.ok()) << executable.error().message;

    const auto memory = executable->memory();
    ASSERT_TRUE(memory.ok());
    EXPECT_EQ(memory->code, 5);
    EXPECT_EQ(memory->argument, 4);
    EXPECT_EQ(memory->output, 3);
    EXPECT_EQ(memory->alias, 2);
    EXPECT_EQ(memory->temporary, 1);
    EXPECT_FALSE(memory->peak.has_value());

    const auto cost = executable->cost();
    ASSERT_TRUE(cost.ok()) << cost.error().message;
    ASSERT_EQ(cost->size(), 2u);  // without the one of an unknown type
    EXPECT_EQ((*cost)[0].name, "a");
    EXPECT_EQ(std::get<double>((*cost)[0].value), 1.5);
    EXPECT_EQ(std::get<int64_t>((*cost)[1].value), -7);

    EXPECT_EQ(executable->fingerprint().error().kind, ErrorKind::unavailable);
    EXPECT_EQ(executable->name().error().kind, ErrorKind::unavailable);
    EXPECT_EQ(executable->outputs().error().kind, ErrorKind::unavailable);
    EXPECT_EQ(executable->code_bytes().error().kind, ErrorKind::unavailable);
    EXPECT_EQ(*executable->serialize(),
              "text|" + compile_options_bytes({2, 1, false, false}));
    EXPECT_EQ(counted(path, "fake_alive"), 2);
  }
  EXPECT_EQ(counted(path, "fake_alive"), 0);
}

}  // namespace
}  // namespace tessera::pjrt
