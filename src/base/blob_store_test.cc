// base/blob_store_test.cc: what is kept comes back whole or not at all.
#include "base/blob_store.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/files.h"
#include "tests/temp_folder.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kRoomy = int64_t{1} << 30;

std::string blob_of_length(size_t n) {
  std::string out(n, '\0');
  for (size_t i = 0; i < n; ++i) {
    out[i] = static_cast<char>((i * 2654435761u) >> 7);
  }
  return out;
}

class BlobStoreTest : public ::testing::Test {
 protected:
  BlobStore store(int64_t max_bytes = kRoomy) const {
    return {folder_, max_bytes};
  }

  // get() and put() that must give no warning.
  static std::optional<std::string> get(const BlobStore& from,
                                        const std::string& key) {
    Warnings warnings;
    auto blob = from.get(key, warnings);
    for (const std::string& w : warnings) ADD_FAILURE() << w;
    return blob;
  }
  static void put(const BlobStore& into, const std::string& key,
                  const std::string& blob) {
    Warnings warnings;
    EXPECT_TRUE(into.put(key, blob, warnings));
    for (const std::string& w : warnings) ADD_FAILURE() << w;
  }

  // The only warning of a get that misses.
  static std::string miss(const BlobStore& from, const std::string& key) {
    Warnings warnings;
    EXPECT_FALSE(from.get(key, warnings).has_value());
    EXPECT_EQ(warnings.size(), 1u);
    return warnings.empty() ? "" : warnings[0];
  }
  static std::string refusal(const BlobStore& into, const std::string& key,
                             const std::string& blob) {
    Warnings warnings;
    EXPECT_FALSE(into.put(key, blob, warnings));
    EXPECT_EQ(warnings.size(), 1u);
    return warnings.empty() ? "" : warnings[0];
  }

  size_t count() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder_),
                                             fs::directory_iterator()));
  }
  void write(const fs::path& path, const std::string& bytes) const {
    std::ofstream(path, std::ios::binary) << bytes;
    fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
  }
  static void set_age(const fs::path& path, int64_t seconds) {
    const struct timespec times[2] = {{::time(nullptr) - seconds, 0},
                                      {::time(nullptr) - seconds, 0}};
    ASSERT_EQ(::utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  }

  // Runs `body` in a child process, which may drop its privileges. Returns what
  // `body` returns.
  template <class Body>
  static bool holds_in_child(Body body) {
    std::fflush(nullptr);
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(60);
      const bool held = body();
      std::fflush(nullptr);
      ::_exit(held && !::testing::Test::HasFailure() ? 0 : 1);
    }
    int status = 0;
    return ::waitpid(child, &status, 0) == child && WIFEXITED(status) &&
           WEXITSTATUS(status) == 0;
  }

  const testing::TempFolder temp_;
  const fs::path root_ = temp_.path();
  const fs::path folder_ = root_ / "cache";
};

TEST_F(BlobStoreTest, GivesBackWhatWasPut) {
  const BlobStore s = store();
  for (const size_t n : {0, 1, 4095, 4096, 3'000'000}) {
    const std::string key = "key " + std::to_string(n);
    put(s, key, blob_of_length(n));
    EXPECT_EQ(get(s, key), blob_of_length(n)) << n;
    EXPECT_EQ(get(store(), key), blob_of_length(n)) << n;
  }
  for (const std::string& key :
       {std::string(), std::string("a/../b\0\n", 8), std::string(5000, 'k')}) {
    put(s, key, "odd " + key);
    EXPECT_EQ(get(s, key), "odd " + key);
  }
  EXPECT_EQ(count(), 8u);  // and no other files
  put(s, "key 1", "newer");
  EXPECT_EQ(get(s, "key 1"), "newer");
  EXPECT_EQ(count(), 8u);
  EXPECT_EQ(fs::file_size(s.path_of("key 1")),
            static_cast<uintmax_t>(BlobStore::overhead("key 1")) + 5);
}

TEST_F(BlobStoreTest, WhatIsNotThereIsNoTrouble) {
  const BlobStore s = store();
  EXPECT_EQ(get(s, "key"), std::nullopt);
  EXPECT_FALSE(fs::exists(folder_));  // get() makes nothing
  Warnings warnings;
  s.remove("key", warnings);
  EXPECT_TRUE(warnings.empty());
  put(s, "key", "blob");
  EXPECT_EQ(get(s, "other"), std::nullopt);
  s.remove("key", warnings);
  s.remove("key", warnings);
  EXPECT_TRUE(warnings.empty());
  EXPECT_EQ(get(s, "key"), std::nullopt);
}

TEST_F(BlobStoreTest, FoldersThatItMakesAreTheUsersAlone) {
  const ::mode_t old = ::umask(0);
  const BlobStore s((folder_ / "a" / "b/").string(), kRoomy);
  put(s, "key", "blob");
  ::umask(old);
  for (const fs::path& made : {folder_, folder_ / "a", folder_ / "a" / "b"}) {
    struct stat status {};
    ASSERT_EQ(::stat(made.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 07777, 0700u) << made;
  }
  struct stat status {};
  ASSERT_EQ(::stat(s.path_of("key").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0600u);
  // put() makes a removed folder again.
  fs::remove_all(folder_);
  EXPECT_EQ(get(s, "key"), std::nullopt);
  put(s, "key", "blob");
}

// Damages every byte of an entry, and truncates it to every length.
TEST_F(BlobStoreTest, ADamagedEntryIsAMissAndIsRemoved) {
  const BlobStore s = store();
  const std::string key = "kernel 42";
  put(s, key, "eight by");
  const std::string whole = *read_file(s.path_of(key), 1 << 20);
  ASSERT_EQ(static_cast<int64_t>(whole.size()), BlobStore::overhead(key) + 8);
  const auto expect_miss = [&](const std::string& bytes, size_t at) {
    write(s.path_of(key), bytes);
    const std::string warning = miss(s, key);
    EXPECT_TRUE(
        warning.starts_with("[cache] an entry must be whole and under "
                            "its own key, found "))
        << warning;
    EXPECT_TRUE(warning.ends_with("(it was removed)")) << warning;
    EXPECT_FALSE(fs::exists(s.path_of(key))) << at;
  };
  for (size_t i = 0; i < whole.size(); ++i) {
    for (const int flip : {1, 0x80, 0xff}) {
      std::string damaged = whole;
      damaged[i] = static_cast<char>(damaged[i] ^ flip);
      expect_miss(damaged, i);
    }
    expect_miss(whole.substr(0, i), i);
    expect_miss(whole.substr(0, i) + std::string(whole.size() - i, '\0'), i);
    expect_miss(whole.substr(0, i) + "x" + whole.substr(i), i);
  }
  expect_miss(whole + std::string(1, '\0'), whole.size());
  expect_miss(whole + whole, whole.size());
  write(s.path_of(key), whole);
  EXPECT_EQ(get(s, key), "eight by");
}

TEST_F(BlobStoreTest, AnEntryUnderAnotherNameIsAMiss) {
  const BlobStore s = store();
  put(s, "key a", "program a");
  put(s, "key b", "program b");
  // Whole files with a correct digest, but of another key: a longer one, or one
  // of the same length.
  put(s, "a longer key", "program c");
  for (const char* other : {"key b", "a longer key"}) {
    fs::remove(s.path_of("key a"));
    fs::copy_file(s.path_of(other), s.path_of("key a"));
    EXPECT_EQ(miss(s, "key a"),
              "[cache] an entry must be whole and under its own key, found "
              "another key for '" +
                  s.path_of("key a") + "' (it was removed)");
    EXPECT_EQ(get(s, "key a"), std::nullopt);
  }
  EXPECT_EQ(get(s, "key b"), "program b");
}

TEST_F(BlobStoreTest, WhatIsNoFileIsAMiss) {
  const BlobStore s = store();
  const std::string outside = root_ / "outside";
  put(s, "key", "blob");
  fs::rename(s.path_of("key"), outside);
  fs::create_symlink(outside, s.path_of("key"));
  EXPECT_NE(miss(s, "key").find("\"Too many levels of symbolic links\""),
            std::string::npos);
  EXPECT_TRUE(fs::exists(outside));
  ASSERT_EQ(::mkfifo(s.path_of("key").c_str(), 0600), 0);
  EXPECT_NE(miss(s, "key").find("found no regular file"), std::string::npos);
  fs::create_directory(s.path_of("key"));
  EXPECT_TRUE(miss(s, "key").ends_with("(it is left as it is)"));
  EXPECT_NE(refusal(s, "key", "blob").find("the cache must be writable, found"),
            std::string::npos);
  EXPECT_EQ(count(), 1u);
}

TEST_F(BlobStoreTest, AFileThatOthersMayWriteIsAMiss) {
  const BlobStore s = store();
  put(s, "key", "blob");
  ASSERT_EQ(::chmod(s.path_of("key").c_str(), 0620), 0);
  EXPECT_NE(miss(s, "key").find("found a file that others may write to"),
            std::string::npos);
  EXPECT_FALSE(fs::exists(s.path_of("key")));
}

TEST_F(BlobStoreTest, TheLeastRecentlyUsedGoFirst) {
  const int64_t each = BlobStore::overhead("key 0") + 1000;
  const BlobStore s = store(4 * each);
  const std::string blob = blob_of_length(1000);
  for (int i = 0; i < 4; ++i) {
    const std::string key = "key " + std::to_string(i);
    put(s, key, blob);
    set_age(s.path_of(key), 1000 - i);
  }
  EXPECT_EQ(get(s, "key 0"), blob);  // the oldest, until now
  put(s, "key 4", blob);
  EXPECT_EQ(count(), 4u);
  EXPECT_EQ(get(s, "key 1"), std::nullopt);
  EXPECT_EQ(get(s, "key 0"), blob);
  // A blob that needs the room of three.
  set_age(s.path_of("key 4"), 10);
  set_age(s.path_of("key 0"), 5);
  put(s, "key 5", blob_of_length(static_cast<size_t>(3 * each) - 100));
  EXPECT_EQ(get(s, "key 2"), std::nullopt);
  EXPECT_EQ(get(s, "key 3"), std::nullopt);
  EXPECT_EQ(get(s, "key 4"), std::nullopt);
  EXPECT_EQ(get(s, "key 0"), blob);
  EXPECT_EQ(count(), 2u);
}

TEST_F(BlobStoreTest, OneThatIsLargerThanTheCacheIsNotKept) {
  const int64_t most = BlobStore::overhead("key") + 100;
  const BlobStore s = store(most);
  put(s, "key", blob_of_length(100));
  EXPECT_EQ(refusal(s, "key", blob_of_length(101)),
            "[cache] a cached entry must be at most " + std::to_string(most) +
                " bytes, found " + std::to_string(most + 1) + " for '" +
                s.folder() + "'");
  EXPECT_EQ(get(s, "key"), blob_of_length(100));
  // A process with a smaller bound does not allocate memory for the blob
  // either.
  const std::string warning = miss(store(most - 1), "key");
  EXPECT_TRUE(warning.ends_with("(it is left as it is)")) << warning;
  EXPECT_EQ(get(s, "key"), blob_of_length(100));
}

TEST_F(BlobStoreTest, FilesOfOthersAreLeftAlone) {
  const BlobStore s = store(BlobStore::overhead("key") + 10);
  put(s, "key", "blob");
  const std::string mine[] = {"notes.txt", "x.blob", ".tessera-notes",
                              std::string(32, 'g') + ".blob",
                              std::string(33, 'a') + ".blob"};
  for (const std::string& name : mine) {
    write(folder_ / name, blob_of_length(5000));
    set_age(folder_ / name, 100'000);
  }
  put(s, "another", "blob");
  EXPECT_EQ(get(s, "key"), std::nullopt);
  for (const std::string& name : mine) {
    EXPECT_TRUE(fs::exists(folder_ / name)) << name;
  }
}

TEST_F(BlobStoreTest, OnlyWhatADeadWriterLeftIsCleanedUp) {
  const BlobStore s = store();
  put(s, "key", "blob");
  const fs::path dead = folder_ / ".tessera-1-00000000000000aa.tmp";
  const fs::path young = folder_ / ".tessera-1-00000000000000bb.tmp";
  const fs::path slow = folder_ / ".tessera-1-00000000000000cc.tmp";
  for (const fs::path& p : {dead, young, slow}) write(p, "half of a bl");
  set_age(dead, 1000);
  set_age(slow, 1000);
  const int writer = ::open(slow.c_str(), O_WRONLY);
  ASSERT_GE(writer, 0);
  ASSERT_EQ(::flock(writer, LOCK_EX), 0);
  put(s, "other", "blob");
  EXPECT_FALSE(fs::exists(dead));
  EXPECT_TRUE(fs::exists(young));
  EXPECT_TRUE(fs::exists(slow));
  ::close(writer);
  put(s, "other", "blob");
  EXPECT_FALSE(fs::exists(slow));
  EXPECT_TRUE(fs::exists(young));
}

// Unfinished files count in the bound, too.
TEST_F(BlobStoreTest, LeftoversCountInTheBound) {
  const BlobStore s = store(5000);
  put(s, "key", blob_of_length(1000));
  set_age(s.path_of("key"), 100);
  write(folder_ / ".tessera-1-00000000000000aa.tmp", blob_of_length(3500));
  put(s, "other", blob_of_length(1000));
  EXPECT_EQ(get(s, "key"), std::nullopt);
  EXPECT_EQ(get(s, "other"), blob_of_length(1000));
}

TEST_F(BlobStoreTest, AFolderThatOthersMayWriteToIsNotUsed) {
  const BlobStore s = store();
  put(s, "key", "blob");
  for (const mode_t mode : {0770u, 0702u, 0777u, 01777u}) {
    ASSERT_EQ(::chmod(folder_.c_str(), mode), 0);
    char text[8];
    std::snprintf(text, sizeof text, "%o", mode);
    const std::string expected =
        "[cache] the cache's folder must be one that only its user writes to, "
        "found mode " +
        std::string(text) + " for '" + s.folder() + "'";
    EXPECT_EQ(miss(s, "key"), expected);
    EXPECT_EQ(refusal(s, "other", "blob"), expected);
    Warnings warnings;
    s.remove("key", warnings);
    EXPECT_EQ(warnings, Warnings{expected});
  }
  ASSERT_EQ(::chmod(folder_.c_str(), 0755), 0);
  EXPECT_EQ(get(s, "key"), "blob");
  if (::geteuid() != 0) GTEST_SKIP() << "the rest is root's to try";
  ASSERT_EQ(::chown(folder_.c_str(), 65534, 65534), 0);
  EXPECT_NE(miss(s, "key").find("found user 65534's for"), std::string::npos);
}

TEST_F(BlobStoreTest, WhatIsNoFolderIsNotUsed) {
  const auto expect = [&](const std::string& folder, const std::string& found) {
    const BlobStore s(folder, kRoomy);
    for (const std::string& warning :
         {miss(s, "key"), refusal(s, "key", "blob")}) {
      EXPECT_NE(warning.find(found), std::string::npos) << warning;
      EXPECT_TRUE(warning.starts_with("[cache] ")) << warning;
    }
  };
  write(root_ / "file", "x");
  expect(root_ / "file", "found something that is no folder for");
  expect(root_ / "file" / "below", "found something that is no folder for");
  expect("", "found no path for ''");
  expect(std::string("a\0b", 3), "found no path for");
  expect("/" + std::string(300, 'n'), "\"File name too long\"");
  // A dangling link counts as absent for a reader, and is an error for a
  // writer.
  fs::create_symlink(root_ / "nowhere", root_ / "link");
  const BlobStore s(root_ / "link", kRoomy);
  EXPECT_EQ(get(s, "key"), std::nullopt);
  EXPECT_NE(refusal(s, "key", "blob").find("No such file or directory"),
            std::string::npos);
}

TEST_F(BlobStoreTest, WithoutPermissionThereIsAWarning) {
  put(store(), "key", "blob");
  fs::permissions(root_, fs::perms::all);
  EXPECT_TRUE(holds_in_child([&] {
    if (::geteuid() == 0) {
      // Root has all rights, so from here on the cache belongs to another user.
      for (const std::string& p : {folder_.string(), store().path_of("key")}) {
        if (::chown(p.c_str(), 65534, 65534) != 0) return false;
      }
      if (::setuid(65534) != 0) return false;
    }
    EXPECT_EQ(get(store(), "key"), "blob");
    // A read-only folder: existing blobs are used.
    ::chmod(folder_.c_str(), 0500);
    EXPECT_EQ(get(store(), "key"), "blob");
    const std::string warning = refusal(store(), "other", "blob");
    EXPECT_EQ(warning,
              "[cache] the cache must be writable, found \"Permission denied\" "
              "for '" +
                  folder_.string() + "'");
    ::chmod(store().path_of("key").c_str(), 0);
    EXPECT_NE(miss(store(), "key").find("\"Permission denied\""),
              std::string::npos);
    ::chmod(folder_.c_str(), 0);
    EXPECT_NE(miss(store(), "key").find("\"Permission denied\""),
              std::string::npos);
    const BlobStore below(folder_ / "below", kRoomy);
    EXPECT_NE(refusal(below, "key", "blob").find("\"Permission denied\""),
              std::string::npos);
    ::chmod(folder_.c_str(), 0700);
    return true;
  }));
}

TEST_F(BlobStoreTest, ADiskThatFillsUpLeavesWhatIsThere) {
  const BlobStore s = store();
  put(s, "key", "old");
  EXPECT_TRUE(holds_in_child([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    const struct rlimit small = {1000, 1000};
    if (::setrlimit(RLIMIT_FSIZE, &small) != 0) return false;
    EXPECT_EQ(refusal(s, "key", blob_of_length(100'000)),
              "[cache] the cache must be writable, found \"File too large\" "
              "for '" +
                  s.folder() + "'");
    EXPECT_EQ(get(s, "key"), "old");
    EXPECT_EQ(count(), 1u);
    return true;
  }));
}

// On a real file system that is full, if this user may mount one.
TEST_F(BlobStoreTest, AFullFileSystemLeavesWhatIsThere) {
  fs::create_directory(folder_);
  const fs::path mounted = root_ / "mounted";
  EXPECT_TRUE(holds_in_child([&] {
    if (::unshare(CLONE_NEWNS) != 0 ||
        ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        ::mount("none", folder_.c_str(), "tmpfs", 0, "size=256k,mode=700") !=
            0) {
      return true;
    }
    std::ofstream(mounted) << "yes";
    const BlobStore s = store();
    put(s, "key", blob_of_length(100'000));
    EXPECT_EQ(refusal(s, "other", blob_of_length(200'000)),
              "[cache] the cache must be writable, found \"No space left on "
              "device\" for '" +
                  s.folder() + "'");
    EXPECT_EQ(get(s, "key"), blob_of_length(100'000));
    EXPECT_EQ(count(), 1u);
    // The same for a file system that became read-only.
    if (::mount("none", folder_.c_str(), nullptr, MS_REMOUNT | MS_RDONLY,
                nullptr) != 0) {
      return false;
    }
    EXPECT_EQ(get(s, "key"), blob_of_length(100'000));
    EXPECT_EQ(refusal(s, "other", "blob"),
              "[cache] the cache must be writable, found \"Read-only file "
              "system\" for '" +
                  s.folder() + "'");
    Warnings warnings;
    s.remove("key", warnings);
    EXPECT_EQ(warnings.size(), 1u);
    return true;
  }));
  if (!fs::exists(mounted)) GTEST_SKIP() << "this user may mount nothing";
}

// Sanitizers need far more address space than they use.
#ifndef TESSERA_SANITIZED
TEST_F(BlobStoreTest, ALargeBlobIsInMemoryOnce) {
  constexpr size_t kLarge = size_t{256} << 20;
  const BlobStore s = store();
  EXPECT_TRUE(holds_in_child([&] {
    const std::string blob = blob_of_length(kLarge);
    put(s, "key", blob);
    std::ifstream statm("/proc/self/statm");
    uint64_t pages = 0;
    statm >> pages;
    const uint64_t used =
        pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
    const struct rlimit room = {used + kLarge * 5 / 4, used + kLarge * 5 / 4};
    if (::setrlimit(RLIMIT_AS, &room) != 0) return false;
    EXPECT_TRUE(get(s, "key") == blob);
    put(s, "other", blob);
    // Too little memory does not end the process.
    const struct rlimit less = {used + kLarge / 2, used + kLarge / 2};
    if (::setrlimit(RLIMIT_AS, &less) != 0) return false;
    EXPECT_NE(miss(s, "key").find("found more bytes than memory has"),
              std::string::npos);
    return true;
  }));
  EXPECT_EQ(count(), 2u);
}
#endif

}  // namespace
}  // namespace tessera
