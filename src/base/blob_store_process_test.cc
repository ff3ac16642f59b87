// base/blob_store_process_test.cc: many processes on one folder, some of which
// are killed.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <thread>

#include "base/blob_store.h"
#include "tests/temp_folder.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

class BlobStoreProcess : public ::testing::Test {
 protected:
  // The child exits with 0 if `body` returns true.
  template <class Body>
  static pid_t start(Body body) {
    std::fflush(nullptr);
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(120);
      ::_exit(body() ? 0 : 1);
    }
    return child;
  }
  static bool went_well(pid_t child) {
    int status = 0;
    return ::waitpid(child, &status, 0) == child && WIFEXITED(status) &&
           WEXITSTATUS(status) == 0;
  }
  static void end(pid_t child) {
    ::kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status));
  }

  std::vector<fs::path> leftovers() const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      if (entry.path().extension() == ".tmp") found.push_back(entry.path());
    }
    return found;
  }
  int64_t total() const {
    int64_t bytes = 0;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      bytes += static_cast<int64_t>(entry.file_size());
    }
    return bytes;
  }

  const testing::TempFolder temp_;
  std::string folder_ = temp_.path();
};

std::string key_of(uint32_t n) { return "program " + std::to_string(n); }

// A key's blobs may have any length; is_blob_of() tells whether a blob is of
// the key.
std::string blob_of(uint32_t n, uint32_t length) {
  std::mt19937 random(n);
  std::string out(length, '\0');
  for (char& c : out) c = static_cast<char>(random());
  return out;
}
bool is_blob_of(uint32_t n, const std::string& blob) {
  return blob == blob_of(n, static_cast<uint32_t>(blob.size()));
}

// Puts and gets at random. True if every blob is whole and of its own key, and
// there is no warning.
bool use(const BlobStore& store, uint32_t seed, int rounds) {
  std::mt19937 random(seed);
  Warnings warnings;
  int64_t hits = 0;
  for (int i = 0; i < rounds; ++i) {
    const auto n = static_cast<uint32_t>(random() % 12);
    if (random() % 2 == 0) {
      const std::string blob =
          blob_of(n, static_cast<uint32_t>(random() % 20'000));
      if (!store.put(key_of(n), blob, warnings)) return false;
    } else if (const auto blob = store.get(key_of(n), warnings)) {
      if (!is_blob_of(n, *blob)) return false;
      ++hits;
    }
    if (!warnings.empty()) {
      std::fprintf(stderr, "%s\n", warnings[0].c_str());
      return false;
    }
  }
  return hits > 0;
}

TEST_F(BlobStoreProcess, EightRaceAndNothingIsHalfThere) {
  const BlobStore store(folder_ + "/new", 60'000);  // about six of twelve
  std::vector<pid_t> children;
  for (uint32_t i = 0; i < 8; ++i) {
    children.push_back(start([&] { return use(store, i, 400); }));
  }
  for (const pid_t child : children) EXPECT_TRUE(went_well(child));
  folder_ += "/new";
  EXPECT_TRUE(leftovers().empty());
  EXPECT_LE(total(), 60'000);
  folder_ = fs::path(folder_).parent_path();
}

TEST_F(BlobStoreProcess, OneKilledHalfWayThroughAWriteLeavesNoEntry) {
  constexpr uint32_t kLarge = 1u << 28;
  const BlobStore store(folder_, int64_t{1} << 30);
  const std::string blob(kLarge, 'x');
  const pid_t child = start([&] {
    Warnings warnings;
    return store.put("key", blob, warnings);
  });
  bool halfway = false;
  for (int i = 0; i < 20'000 && !halfway; ++i) {
    for (const fs::path& p : leftovers()) {
      std::error_code gone;
      const uintmax_t size = fs::file_size(p, gone);
      halfway = halfway || (!gone && size > 0);
    }
    if (!halfway) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ASSERT_TRUE(halfway);
  end(child);
  ASSERT_EQ(leftovers().size(), 1u);
  const fs::path half = leftovers()[0];
  EXPECT_GT(fs::file_size(half), 0u);
  EXPECT_LT(fs::file_size(half), uintmax_t{kLarge});

  Warnings warnings;
  EXPECT_EQ(store.get("key", warnings), std::nullopt);
  EXPECT_TRUE(store.put("key", "small", warnings));
  EXPECT_EQ(store.get("key", warnings), "small");
  EXPECT_TRUE(fs::exists(half));  // as if its writer might still live
  const time_t past = ::time(nullptr) - 3600;
  const struct timespec times[2] = {{past, 0}, {past, 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, half.c_str(), times, 0), 0);
  EXPECT_TRUE(store.put("other", "small", warnings));
  EXPECT_FALSE(fs::exists(half));
  EXPECT_TRUE(warnings.empty());
}

TEST_F(BlobStoreProcess, KilledAtAnyTimeItLeavesWholeEntriesOnly) {
  const BlobStore store(folder_, int64_t{1} << 28);
  std::mt19937 random(7);
  Warnings warnings;
  int found = 0;
  for (int round = 0; round < 40; ++round) {
    const pid_t child = start([&] {
      Warnings none;
      for (uint32_t n = 0;; n = (n + 1) % 4) {
        if (!store.put(key_of(n), blob_of(n, 100'000 + n), none)) return false;
      }
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 20));
    end(child);
    for (uint32_t n = 0; n < 4; ++n) {
      const auto blob = store.get(key_of(n), warnings);
      if (!blob) continue;
      ++found;
      EXPECT_EQ(blob->size(), 100'000 + n);
      EXPECT_TRUE(is_blob_of(n, *blob));
    }
  }
  EXPECT_GT(found, 0);
  for (const std::string& w : warnings) ADD_FAILURE() << w;
}

}  // namespace
}  // namespace tessera
