// pjrt/compile_cache_test.cc: counts compiles, and checks that a hit is never
// another program.
#include "pjrt/compile_cache.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <thread>

#include "base/blob_store.h"
#include "base/bytes.h"
#include "base/child.h"
#include "base/files.h"
#include "pjrt/identity.h"
#include "tests/plugins.h"
#include "tests/temp_folder.h"

namespace tessera::pjrt {
namespace {

namespace fs = std::filesystem;
using tessera::testing::fake_plugin;
using tessera::testing::is_absent;
using tessera::testing::real_plugin;

// Variables for a child of these tests: its inputs, and where it writes its
// counts.
constexpr const char* kFolder = "TESSERA_TEST_CACHE_FOLDER";
constexpr const char* kReport = "TESSERA_TEST_CACHE_REPORT";
constexpr const char* kStart = "TESSERA_TEST_CACHE_START";
constexpr const char* kNoRoom = "TESSERA_TEST_CACHE_NO_ROOM";
constexpr const char* kWrapped = "TESSERA_TEST_WRAPPED_PLUGIN";

constexpr int kPrograms = 3;

// A program that multiplies by `factor`, which identifies it.
std::string program_of(int factor) {
  const std::string n = std::to_string(factor);
  return "module @scale" + n +
         " {\n"
         "  func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {\n"
         "    %0 = stablehlo.constant dense<" +
         n +
         ".0> : tensor<4xf32>\n"
         "    %1 = stablehlo.multiply %a, %0 : tensor<4xf32>\n"
         "    return %1 : tensor<4xf32>\n"
         "  }\n"
         "}\n";
}

ProgramKey key_of(int factor) {
  const std::string n = std::to_string(factor);
  return {"contract " + n, "{\"lane\":\"xla\",\"q_len\":" + n + "}"};
}

class CompileCacheTest : public ::testing::Test {
 protected:
  void SetUp() override {
    options_.folder = root_ / "cache";
    auto plugin = real_plugin("xla_cpu_pjrt");
    if (is_absent(plugin)) GTEST_SKIP() << plugin.error().message;
    ASSERT_TRUE(plugin.ok()) << plugin.error().message;
    open(**plugin);
  }
  void open(const Plugin& plugin) {
    auto client = open_client(plugin, {{"cpu_device_count", int64_t{2}}});
    ASSERT_TRUE(client.ok()) << client.error().message;
    client_ = *client;
    device_ = &client_->devices()[0];
  }
  // Opens the real plugin behind a wrapper that changes something; each wrapper
  // is a plugin of its own.
  void open_wrapped(const std::string& name) {
    setenv(kWrapped, client_->plugin().path().c_str(), 1);
    auto plugin = load_plugin(fake_plugin(name));
    ASSERT_TRUE(plugin.ok()) << plugin.error().message;
    open(**plugin);
  }

  Result<Cached> get(CompileCache& cache, int factor) const {
    return cache.get(
        *client_, *device_, key_of(factor),
        [&]() -> Result<std::string> { return program_of(factor); });
  }
  // Gets the program and runs it to check its factor.
  Cached expect(CompileCache& cache, int factor, Found found) const {
    auto cached = get(cache, factor);
    EXPECT_TRUE(cached.ok()) << cached.error().message;
    if (!cached) return {};
    EXPECT_EQ(cached->found, found) << factor;
    expect_factor(*cached->program, factor);
    return std::move(*cached);
  }
  void expect_factor(const Loaded& program, int factor) const {
    EXPECT_EQ(result_of(program), 3.0f * static_cast<float>(factor));
  }
  float result_of(const Loaded& program) const {
    alignas(kInPlaceAlignment) const float in[4] = {1, 2, 3, 4};
    float out[4] = {};
    const auto buffer =
        to_device(*client_, program.device(), {Dtype::f32, {4}}, in);
    EXPECT_TRUE(buffer.ok()) << buffer.error().message;
    const Buffer* inputs[] = {&*buffer};
    const auto outputs = execute(program, inputs);
    EXPECT_TRUE(outputs.ok()) << outputs.error().message;
    if (!outputs) return 0;
    EXPECT_TRUE(to_host((*outputs)[0], out, sizeof out).ok());
    return out[2];
  }

  static void expect_counts(const CompileCache& cache, int64_t compiles,
                            int64_t memory_hits, int64_t disk_hits) {
    const CompileCounts counts = cache.counts();
    EXPECT_EQ(counts.compiles, compiles);
    EXPECT_EQ(counts.memory_hits, memory_hits);
    EXPECT_EQ(counts.disk_hits, disk_hits);
  }

  std::vector<fs::path> files() const {
    std::vector<fs::path> found;
    if (!fs::exists(options_.folder)) return found;
    for (const auto& entry : fs::directory_iterator(options_.folder)) {
      found.push_back(entry.path());
    }
    std::sort(found.begin(), found.end());
    return found;
  }
  // The only file that exists now and is not in `before`.
  fs::path new_file(const std::vector<fs::path>& before) const {
    for (const fs::path& p : files()) {
      if (std::find(before.begin(), before.end(), p) == before.end()) return p;
    }
    ADD_FAILURE() << "no new file";
    return {};
  }
  // The key in a file of the store.
  static std::string entry_key(const fs::path& path) {
    const std::string bytes = *read_file(path, 1 << 26);
    const auto size = load_number(bytes, 8);
    const auto blob = load_number(bytes, 16);
    return bytes.substr(bytes.size() - size - blob, size);
  }
  static size_t load_number(const std::string& bytes, size_t at) {
    return tessera::load<uint64_t>(bytes, at);
  }

  // Runs this test program as a child process, which gets all programs and
  // reports its counts.
  struct Child {
    int64_t compiles = -1, disk_hits = -1, warnings = -1;
  };
  Child run_child_process(
      const std::string& name,
      std::vector<std::pair<std::string, std::string>> environment) const {
    const std::string report = root_ / name;
    environment.emplace_back(kFolder, options_.folder);
    environment.emplace_back(kReport, report);
    const std::string self = fs::read_symlink("/proc/self/exe");
    const auto run = run_child(
        {self, "--gtest_filter=CompileCacheTest.AnotherProcessIsThis"},
        environment, 240);
    EXPECT_TRUE(run.ok());
    EXPECT_EQ(run->exit_code, 0) << run->out << run->err;
    Child child;
    std::ifstream(report) >> child.compiles >> child.disk_hits >>
        child.warnings;
    return child;
  }

  const testing::TempFolder temp_;
  const fs::path root_ = temp_.path();
  CacheOptions options_;
  const Client* client_ = nullptr;
  const Device* device_ = nullptr;
};

// A plugin with another version of the interface, and with other code.
TEST_F(CompileCacheTest, ASecondPluginHasEntriesOfItsOwn) {
  {
    CompileCache cache(options_);
    expect(cache, 2, Found::compiled);
  }
  auto second = real_plugin("lammps_jax_pjrt_cpu");
  if (is_absent(second)) GTEST_SKIP() << second.error().message;
  ASSERT_TRUE(second.ok()) << second.error().message;
  open(**second);
  for (const Found found : {Found::compiled, Found::disk}) {
    CompileCache cache(options_);
    EXPECT_TRUE(expect(cache, 2, found).warnings.empty());
  }
  EXPECT_EQ(files().size(), 2u);
}

TEST_F(CompileCacheTest, OneProgramCompilesOnceInAProcess) {
  options_.folder.clear();
  CompileCache cache(options_);
  int written = 0;
  for (int i = 0; i < 10; ++i) {
    const auto cached =
        cache.get(*client_, *device_, key_of(2), [&]() -> Result<std::string> {
          ++written;
          return program_of(2);
        });
    ASSERT_TRUE(cached.ok()) << cached.error().message;
    EXPECT_EQ(cached->found, i == 0 ? Found::compiled : Found::memory);
    EXPECT_EQ(cached->compile_ms > 0, i == 0);
    EXPECT_TRUE(cached->warnings.empty());
    expect_factor(*cached->program, 2);
  }
  EXPECT_EQ(written, 1);
  expect_counts(cache, 1, 9, 0);
  expect(cache, 3, Found::compiled);
  expect_counts(cache, 2, 9, 0);
}

TEST_F(CompileCacheTest, EachDeviceHasItsProgram) {
  ASSERT_GE(client_->devices().size(), 2u);
  CompileCache cache(options_);
  expect(cache, 2, Found::compiled);
  device_ = &client_->devices()[1];
  const Cached other = expect(cache, 2, Found::compiled);
  EXPECT_EQ(other.program->device().id, client_->devices()[1].id);
  CompileCache again(options_);
  EXPECT_EQ(expect(again, 2, Found::disk).program->device().id, device_->id);
}

TEST_F(CompileCacheTest, WhatOneCacheCompiledAnotherFindsOnDisk) {
  {
    CompileCache cache(options_);
    for (int f = 1; f <= kPrograms; ++f) expect(cache, f, Found::compiled);
    EXPECT_EQ(files().size(), size_t{kPrograms});
  }
  CompileCache cache(options_);
  for (int f = 1; f <= kPrograms; ++f) {
    const Cached cached = expect(cache, f, Found::disk);
    EXPECT_TRUE(cached.warnings.empty());
    EXPECT_GT(cached.compile_ms, 0);
    expect(cache, f, Found::memory);
  }
  expect_counts(cache, 0, kPrograms, kPrograms);
}

// Runs as a child of the tests below; on its own it is one more test.
TEST_F(CompileCacheTest, AnotherProcessIsThis) {
  const char* folder = std::getenv(kFolder);
  if (folder) options_.folder = folder;
  if (const char* start = std::getenv(kStart)) {
    while (!fs::exists(start)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  if (std::getenv(kNoRoom)) {
    ::signal(SIGXFSZ, SIG_IGN);
    const struct rlimit small = {300, RLIM_INFINITY};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  }
  CompileCache cache(options_);
  size_t warnings = 0;
  for (int f = 1; f <= kPrograms; ++f) {
    const auto cached = get(cache, f);
    ASSERT_TRUE(cached.ok()) << cached.error().message;
    expect_factor(*cached->program, f);
    warnings += cached->warnings.size();
  }
  const CompileCounts counts = cache.counts();
  if (const char* report = std::getenv(kReport)) {
    std::ofstream(report) << counts.compiles << ' ' << counts.disk_hits << ' '
                          << warnings;
  } else {
    EXPECT_EQ(counts.compiles, kPrograms);
  }
}

TEST_F(CompileCacheTest, ASecondProcessCompilesNothing) {
  const Child first = run_child_process("first", {});
  EXPECT_EQ(first.compiles, kPrograms);
  EXPECT_EQ(first.warnings, 0);
  const Child second = run_child_process("second", {});
  EXPECT_EQ(second.compiles, 0);
  EXPECT_EQ(second.disk_hits, kPrograms);
  EXPECT_EQ(second.warnings, 0);
  // Variables that the compiler reads make other programs.
  const Child other = run_child_process(
      "other", {{"XLA_FLAGS", "--xla_cpu_enable_fast_math=false"}});
  EXPECT_EQ(other.compiles, kPrograms);
}

TEST_F(CompileCacheTest, EightProcessesRace) {
  constexpr int kProcesses = 8;
  const std::string start = root_ / "start";
  Child children[kProcesses];
  std::vector<std::thread> threads;
  for (int i = 0; i < kProcesses; ++i) {
    threads.emplace_back([&, i] {
      children[i] =
          run_child_process("child" + std::to_string(i), {{kStart, start}});
    });
  }
  std::this_thread::sleep_for(std::chrono::seconds(2));
  std::ofstream(start) << "go";
  for (std::thread& t : threads) t.join();
  for (const Child& child : children) {
    EXPECT_EQ(child.compiles + child.disk_hits, kPrograms);
    EXPECT_EQ(child.warnings, 0);
  }
  EXPECT_EQ(files().size(), size_t{kPrograms});
  EXPECT_EQ(run_child_process("after", {}).compiles, 0);
}

TEST_F(CompileCacheTest, AFullDiskCostsACompileAndNoMore) {
  const Child child = run_child_process("child", {{kNoRoom, "1"}});
  EXPECT_EQ(child.compiles, kPrograms);
  EXPECT_EQ(child.warnings, kPrograms);
  EXPECT_TRUE(files().empty());
}

TEST_F(CompileCacheTest, AnUnsafeFolderIsNotUsedAndSaidOnce) {
  fs::create_directory(options_.folder);
  fs::permissions(options_.folder, fs::perms::all);
  CompileCache cache(options_);
  const Cached cached = expect(cache, 2, Found::compiled);
  ASSERT_EQ(cached.warnings.size(), 1u);
  EXPECT_NE(cached.warnings[0].find("found mode 777"), std::string::npos);
  EXPECT_TRUE(files().empty());
  options_.folder = "/proc/nothing/here";
  CompileCache nowhere(options_);
  EXPECT_EQ(expect(nowhere, 2, Found::compiled).warnings.size(), 1u);
}

// A whole, valid entry of one program under the name of another's.
TEST_F(CompileCacheTest, APoisonedEntryIsNeverAHit) {
  std::vector<fs::path> path(3);
  {
    CompileCache cache(options_);
    for (int f = 1; f <= 2; ++f) {
      const auto before = files();
      expect(cache, f, Found::compiled);
      path[static_cast<size_t>(f)] = new_file(before);
    }
  }
  fs::copy_file(path[2], path[1], fs::copy_options::overwrite_existing);
  CompileCache cache(options_);
  const Cached cached = expect(cache, 1, Found::compiled);
  ASSERT_EQ(cached.warnings.size(), 1u);
  EXPECT_NE(cached.warnings[0].find("found another key for"),
            std::string::npos);
  CompileCache again(options_);
  expect(again, 1, Found::disk);
  expect(again, 2, Found::disk);
}

TEST_F(CompileCacheTest, ADamagedEntryIsCompiledAgain) {
  {
    CompileCache cache(options_);
    expect(cache, 1, Found::compiled);
  }
  const fs::path path = files().at(0);
  const std::string whole = *read_file(path, 1 << 26);
  for (const size_t at : {size_t{0}, size_t{20}, size_t{30}, size_t{100},
                          whole.size() / 2, whole.size() - 1}) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 4);
    ASSERT_TRUE(write_file(path, damaged).ok());
    CompileCache cache(options_);
    EXPECT_EQ(expect(cache, 1, Found::compiled).warnings.size(), 1u) << at;
    ASSERT_TRUE(write_file(path, whole.substr(0, at)).ok());
    CompileCache shorter(options_);
    EXPECT_EQ(expect(shorter, 1, Found::compiled).warnings.size(), 1u) << at;
    CompileCache again(options_);
    expect(again, 1, Found::disk);
  }
}

// The contract's key is the same, but the program is not: from another version
// of a lane, or by a defect of one.
TEST_F(CompileCacheTest, AnotherProgramUnderOneContractIsNoHitOnDisk) {
  {
    CompileCache cache(options_);
    expect(cache, 5, Found::compiled);
  }
  CompileCache cache(options_);
  const auto cached =
      cache.get(*client_, *device_, key_of(5),
                []() -> Result<std::string> { return program_of(6); });
  ASSERT_TRUE(cached.ok());
  EXPECT_EQ(cached->found, Found::compiled);
  expect_factor(*cached->program, 6);
}

TEST_F(CompileCacheTest, AnEntryHoldsAllThatItDependsOn) {
  CompileCache cache(options_);
  expect(cache, 2, Found::compiled);
  const std::string key = entry_key(files().at(0));
  for (const std::string& part :
       {std::string("contract 'contract 2'"),
        *file_identity(client_->plugin().path()),
        "api minor " + std::to_string(client_->plugin().minor_version()),
        "platform '" + client_->platform() + "'", std::string("XLA_FLAGS "),
        std::string("flags\t"), std::string("model name\t"),
        std::string("cores ")}) {
    EXPECT_NE(key.find(part), std::string::npos) << part << " in\n" << key;
  }
}

TEST_F(CompileCacheTest, FilesAreKnownByTheirBuildOrTheirTimes) {
  const std::string a = root_ / "a", b = root_ / "b";
  std::ofstream(a) << "not a library";
  fs::copy_file(a, b);
  EXPECT_TRUE(file_identity(a)->starts_with("size 13 modified "));
  EXPECT_NE(*file_identity(a), *file_identity(b));
  EXPECT_FALSE(file_identity(root_ / "c").ok());
  // A copy of a file with a build id has the same identity.
  const std::string self = "/bin/sh";
  const auto id = file_identity(self);
  ASSERT_TRUE(id.ok());
  if (!id->starts_with("build ")) return;
  const std::string copy = root_ / "sh";
  fs::copy_file(self, copy);
  EXPECT_EQ(*file_identity(copy), *id);
}

TEST_F(CompileCacheTest, AtTheLimitTheErrorNamesWhatVaried) {
  options_.max_compiles = 3;
  CompileCache cache(options_);
  for (const int f : {4, 6, 8}) expect(cache, f, Found::compiled);
  const auto refused = get(cache, 12);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().kind, ErrorKind::limit);
  EXPECT_EQ(refused.error().message,
            "[cache] compiles must be at most 3, found one more for contract "
            "'contract 12' (from the nearest known one differs: q_len 8, 12)");
  expect(cache, 4, Found::memory);
  expect_counts(cache, 3, 1, 0);
  // Programs on disk need no compile.
  options_.max_compiles = 1;
  CompileCache warm(options_);
  for (const int f : {4, 6, 8}) expect(warm, f, Found::disk);
  expect(warm, 12, Found::compiled);
  EXPECT_FALSE(get(warm, 16).ok());
}

TEST_F(CompileCacheTest, ThreadsThatWantOneProgramCompileItOnce) {
  CompileCache cache(options_);
  std::vector<std::thread> threads;
  std::atomic<int> compiled{0}, written{0};
  for (int i = 0; i < 12; ++i) {
    threads.emplace_back([&, i] {
      const int factor = 2 + i % 3;
      const auto cached = cache.get(
          *client_, *device_, key_of(factor), [&]() -> Result<std::string> {
            ++written;
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
            return program_of(factor);
          });
      ASSERT_TRUE(cached.ok()) << cached.error().message;
      if (cached->found == Found::compiled) ++compiled;
      expect_factor(*cached->program, factor);
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(compiled, 3);
  EXPECT_EQ(written, 3);
  expect_counts(cache, 3, 9, 0);
}

// Two writes that wait for each other would wait for ever if one held the lock.
TEST_F(CompileCacheTest, DifferentProgramsAreMadeAtOnce) {
  CompileCache cache(options_);
  std::atomic<int> inside{0};
  std::atomic<bool> met{true};
  const auto one = [&](int factor) {
    const auto cached = cache.get(
        *client_, *device_, key_of(factor), [&]() -> Result<std::string> {
          ++inside;
          for (int i = 0; i < 10'000 && inside < 2; ++i) {
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          }
          if (inside < 2) met = false;
          return program_of(factor);
        });
    EXPECT_TRUE(cached.ok());
  };
  std::thread other([&] { one(2); });
  one(3);
  other.join();
  EXPECT_TRUE(met);
}

TEST_F(CompileCacheTest, AFailureIsToldAndTriedAgain) {
  CompileCache cache(options_);
  const auto get_as = [&](std::function<Result<std::string>()> write) {
    return cache.get(*client_, *device_, key_of(2), write);
  };
  const auto unwritten = get_as([]() -> Result<std::string> {
    return Error{ErrorKind::invalid, "[xla] it must be written, found not", 0};
  });
  ASSERT_FALSE(unwritten.ok());
  EXPECT_EQ(unwritten.error().message, "[xla] it must be written, found not");
  expect_counts(cache, 0, 0, 0);
  const auto broken =
      get_as([]() -> Result<std::string> { return std::string("no program"); });
  ASSERT_FALSE(broken.ok());
  EXPECT_TRUE(broken.error().message.starts_with(
      "[pjrt] the program must compile, found "))
      << broken.error().message;
  expect_counts(cache, 1, 0, 0);  // the compiler ran
  EXPECT_THROW((void)get_as([]() -> Result<std::string> {
                 throw std::runtime_error("thrown");
               }),
               std::runtime_error);
  expect(cache, 2, Found::compiled);
  EXPECT_EQ(files().size(), 1u);

  // Threads that wait get the error, too.
  std::atomic<int> failed{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      const auto refused =
          cache.get(*client_, *device_, key_of(3), []() -> Result<std::string> {
            std::this_thread::sleep_for(std::chrono::milliseconds(100));
            return Error{ErrorKind::limit, "[xla] too much, found it", 0};
          });
      if (!refused && refused.error().kind == ErrorKind::limit) ++failed;
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(failed, 4);
}

TEST_F(CompileCacheTest, MemoryHoldsSoManyAndForgetsTheOldest) {
  options_.max_programs = 2;
  CompileCache cache(options_);
  const Cached kept = expect(cache, 1, Found::compiled);
  expect(cache, 2, Found::compiled);
  expect(cache, 1, Found::memory);
  expect(cache, 3, Found::compiled);
  expect(cache, 1, Found::memory);
  expect(cache, 2, Found::disk);  // was evicted from memory
  expect(cache, 3, Found::disk);
  expect_factor(*kept.program, 1);  // a program in use stays
}

TEST_F(CompileCacheTest, TheDiskIsBounded) {
  {
    CompileCache cache(options_);
    expect(cache, 2, Found::compiled);
  }
  const auto one = static_cast<int64_t>(fs::file_size(files().at(0)));
  options_.max_bytes = one * 5 / 2;
  CompileCache cache(options_);
  for (int f = 2; f <= 7; ++f) {
    EXPECT_TRUE(expect(cache, f, f == 2 ? Found::disk : Found::compiled)
                    .warnings.empty());
  }
  EXPECT_EQ(files().size(), 2u);
  options_.max_bytes = one / 2;
  CompileCache small(options_);
  EXPECT_EQ(expect(small, 9, Found::compiled).warnings.size(), 1u);
}

TEST_F(CompileCacheTest, APluginThatCannotSerializeIsSaidOnce) {
  open_wrapped("cannot_serialize");
  CompileCache cache(options_);
  const Cached first = expect(cache, 1, Found::compiled);
  ASSERT_EQ(first.warnings.size(), 1u);
  EXPECT_NE(first.warnings[0].find(
                "[cache] a program must be serialized to be kept on disk"),
            std::string::npos)
      << first.warnings[0];
  EXPECT_TRUE(expect(cache, 2, Found::compiled).warnings.empty());
  EXPECT_TRUE(expect(cache, 1, Found::memory).warnings.empty());
  EXPECT_TRUE(files().empty());
}

TEST_F(CompileCacheTest, APluginThatCannotLoadIsSaidOnce) {
  open_wrapped("cannot_load");
  {
    CompileCache cache(options_);
    for (int f = 1; f <= 2; ++f) expect(cache, f, Found::compiled);
  }
  CompileCache cache(options_);
  const Cached first = expect(cache, 1, Found::compiled);
  ASSERT_EQ(first.warnings.size(), 1u);
  EXPECT_NE(first.warnings[0].find("the plugin must load what it serialized"),
            std::string::npos);
  EXPECT_TRUE(expect(cache, 2, Found::compiled).warnings.empty());
}

TEST_F(CompileCacheTest, AnEntryThatThePluginRefusesIsRemoved) {
  open_wrapped("refuses_load");
  {
    CompileCache cache(options_);
    expect(cache, 1, Found::compiled);
  }
  const fs::path path = files().at(0);
  const std::string key = entry_key(path);
  const BlobStore store(options_.folder, options_.max_bytes);
  ASSERT_EQ(store.path_of(key), path.string());
  Warnings none;
  ASSERT_TRUE(store.put(key, "whole, and yet no program", none));
  CompileCache cache(options_);
  const Cached cached = expect(cache, 1, Found::compiled);
  ASSERT_EQ(cached.warnings.size(), 1u);
  EXPECT_NE(cached.warnings[0].find("the plugin must load what it serialized"),
            std::string::npos);
  EXPECT_GT(fs::file_size(path), 1000u);  // the new one

  // The entry is removed even if no new one replaces it.
  options_.max_compiles = 1;
  CompileCache limited(options_);
  expect(limited, 2, Found::compiled);
  EXPECT_FALSE(get(limited, 1).ok());
  EXPECT_FALSE(fs::exists(path));
}

}  // namespace
}  // namespace tessera::pjrt
