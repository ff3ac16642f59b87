// base/files_test.cc: reads and writes whole files, and every way to fail.
#include "base/files.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include "base/text.h"
#include "tests/full_disk.h"
#include "tests/temp_folder.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

class Files : public ::testing::Test {
 protected:
  std::string path(const std::string& name) const { return root_ / name; }
  std::string put(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }
  size_t count() const {
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(root_), fs::directory_iterator()));
  }

  const testing::TempFolder folder_;
  const fs::path root_ = folder_.path();
};

std::string bytes_of_length(size_t n) {
  std::string out(n, '\0');
  for (size_t i = 0; i < n; ++i) out[i] = static_cast<char>(i * 2654435761u);
  return out;
}

TEST_F(Files, ReadsBackWhatWasWritten) {
  for (const size_t n : {0, 1, 4095, 4096, 4097, 100'000, 3'000'000}) {
    const std::string bytes = bytes_of_length(n);
    ASSERT_TRUE(write_file(path("f"), bytes).ok());
    const auto again = read_file(path("f"), static_cast<int64_t>(n));
    ASSERT_TRUE(again.ok()) << again.error().message;
    EXPECT_EQ(*again, bytes) << n;
  }
  EXPECT_EQ(count(), 1u);  // no temporary file is left
}

TEST_F(Files, TheCeilingIsExact) {
  const std::string p = put("f", bytes_of_length(5000));
  EXPECT_TRUE(read_file(p, 5000).ok());
  const auto r = read_file(p, 4999);
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().kind, ErrorKind::limit);
  EXPECT_EQ(
      r.error().message,
      "[file] input must be at most 4999 bytes, found 5000 for '" + p + "'");
}

TEST_F(Files, ReadErrorsSayWhatIsThere) {
  const auto message = [](const std::string& p) {
    const auto r = read_file(p, 1 << 20);
    return r.ok() ? "no error" : r.error().message;
  };
  EXPECT_EQ(message(""), "[file] a path must not be empty, found '' for it");
  EXPECT_EQ(message(std::string("a\0b", 3)),
            "[file] a path must hold no NUL byte, found one for 'a\\x00b'");
  EXPECT_EQ(message("/nonexistent/f"),
            "[file] input must exist, found no file for '/nonexistent/f'");
  EXPECT_EQ(message("/dev/zero"),
            "[file] input must be a file or a pipe, found a device for "
            "'/dev/zero'");
  EXPECT_EQ(message("/"),
            "[file] input must be a file or a pipe, found a directory for '/'");
  const std::string p = put("f", "x");
  EXPECT_EQ(message(p + "/g"),
            "[file] input must be readable, found \"Not a directory\" for '" +
                p + "/g'");
  if (::geteuid() != 0) {
    ::chmod(p.c_str(), 0);
    EXPECT_EQ(message(p),
              "[file] input must be readable, found \"Permission denied\" for "
              "'" +
                  p + "'");
  }
}

TEST_F(Files, AnEndlessPipeStopsAtTheCeiling) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  ::signal(SIGPIPE, SIG_IGN);
  std::thread writer([&] {
    std::ofstream out(path("pipe"), std::ios::binary);
    const std::string block(65536, 'x');
    while (out) out << block;
  });
  const auto r = read_file(path("pipe"), 1'000'000);
  writer.join();
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().message,
            "[file] input must be at most 1000000 bytes, found 1000001 or more "
            "for '" +
                path("pipe") + "'");
}

TEST_F(Files, APipeIsReadToItsEnd) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  const std::string bytes = bytes_of_length(200'000);
  std::thread writer(
      [&] { std::ofstream(path("pipe"), std::ios::binary) << bytes; });
  const auto r = read_file(path("pipe"), 1 << 20);
  writer.join();
  ASSERT_TRUE(r.ok());
  EXPECT_EQ(*r, bytes);
}

TEST_F(Files, WriteErrorsSayWhatIsThere) {
  const auto message = [](const std::string& p) {
    const auto r = write_file(p, "bytes");
    return r.ok() ? "no error" : r.error().message;
  };
  EXPECT_EQ(message(""), "[file] a path must not be empty, found '' for it");
  EXPECT_EQ(message(path("no/f")),
            "[file] output must lie in a directory that exists, found none for "
            "'" +
                path("no/f") + "'");
  EXPECT_EQ(message(path("new/")),
            "[file] output must lie in a directory that exists, found none for "
            "'" +
                path("new/") + "'");
  EXPECT_EQ(message(root_),
            "[file] output must be a file, found a directory for '" +
                root_.string() + "'");
  EXPECT_EQ(message("/dev/full"),
            "[file] output must be writable, found \"No space left on device\" "
            "for '/dev/full'");
  fs::create_symlink(path("gone"), path("link"));
  EXPECT_EQ(message(path("link")),
            "[file] output must be a file, found a link to nothing for '" +
                path("link") + "'");
  EXPECT_EQ(count(), 1u);
}

TEST_F(Files, ADiskThatFillsUpLeavesTheOldFile) {
  const std::string p = put("f", "old");
  std::optional<testing::FullDisk> disk(1000);
  ASSERT_TRUE(disk->holds());
  const auto r = write_file(p, bytes_of_length(100'000));
  disk.reset();
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().kind, ErrorKind::io);
  EXPECT_EQ(r.error().message,
            "[file] output must be writable, found \"File too large\" for '" +
                p + "'");
  EXPECT_EQ(*read_file(p, 100), "old");
  EXPECT_EQ(count(), 1u);
}

TEST_F(Files, WritingKeepsLinksAndModes) {
  const std::string p = put("f", "old");
  ::chmod(p.c_str(), 0640);
  fs::create_symlink(p, path("link"));
  ASSERT_TRUE(write_file(path("link"), "new").ok());
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_EQ(*read_file(p, 100), "new");
  struct stat status {};
  ASSERT_EQ(::stat(p.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0640u);
}

TEST_F(Files, ANameAsLongAsNamesCanBeIsWritten) {
  const std::string p = path(std::string(255, 'n'));
  ASSERT_TRUE(write_file(p, "x").ok());
  EXPECT_EQ(*read_file(p, 100), "x");
}

TEST_F(Files, AWriterThatFailsLeavesTheOldFile) {
  const std::string p = put("f", "old");
  const auto write = [](bool well) {
    return [well](int file) -> Result<void> {
      EXPECT_EQ(::write(file, "new", 3), 3);
      if (well) return {};
      return Error{ErrorKind::io, "[x] it broke"};
    };
  };
  const auto failed = write_file_by(p, write(false));
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().message, "[x] it broke");
  EXPECT_EQ(*read_file(p, 100), "old");
  EXPECT_EQ(count(), 1u);
  ASSERT_TRUE(write_file_by(p, write(true)).ok());
  EXPECT_EQ(*read_file(p, 100), "new");
  EXPECT_EQ(count(), 1u);
}

// The next run removes the leftover of a killed run, but not the file of a run
// that is still writing.
TEST_F(Files, ALongWriteHasOneWriter) {
  const std::string p = path(std::string(255, 'n'));
  const auto writes = [](std::string_view bytes) {
    return [bytes](int file) -> Result<void> {
      EXPECT_TRUE(write_all(file, bytes));
      return {};
    };
  };
  std::string name;
  const auto outer = write_file_by(p, [&](int file) -> Result<void> {
    for (const auto& entry : fs::directory_iterator(path(""))) {
      name = entry.path();
    }
    EXPECT_EQ(count(), 1u);
    EXPECT_TRUE(write_all(file, "the first's"));
    const auto second = write_file_by(p, writes("the second's"));
    EXPECT_FALSE(second.ok());
    EXPECT_EQ(second.error().kind, ErrorKind::unavailable);
    EXPECT_TRUE(second.error().message.starts_with(
        "[file] output must have one writer, found another run for '"))
        << second.error().message;
    EXPECT_TRUE(write_file_by(path("other"), writes("x")).ok());
    // A short write waits for no other run: the last rename wins.
    EXPECT_TRUE(rewrite_file(p, "a moment's").ok());
    EXPECT_EQ(*read_file(p, 100), "a moment's");
    return {};
  });
  ASSERT_TRUE(outer.ok()) << outer.error().message;
  EXPECT_EQ(*read_file(p, 100), "the first's");
  EXPECT_EQ(count(), 2u);

  std::ofstream(name) << "a longer text, which was cut short";
  ASSERT_TRUE(write_file_by(p, writes("whole")).ok());
  EXPECT_EQ(*read_file(p, 100), "whole");
  EXPECT_EQ(count(), 2u);
  // A leftover is replaced by a new file with the mode that this run chooses.
  fs::remove(p);
  std::ofstream(name) << "left";
  fs::permissions(name, fs::perms::owner_all);
  ASSERT_TRUE(write_file_by(p, writes("whole")).ok());
  const fs::path other = put("beside", "");
  EXPECT_EQ(fs::status(p).permissions(), fs::status(other).permissions());
  // A file that no run left is neither overwritten nor waited for.
  const std::string mine = put("mine", "mine");
  const auto refuses = [&](const std::string& found) {
    const auto refused = write_file_by(p, writes("lost"));
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().message,
              "[file] output must have one writer, found " + found + " at " +
                  in_quotes(name) + " for " + in_quotes(p));
    fs::remove(name);
  };
  fs::create_symlink(mine, name);
  refuses("what is no file");
  ASSERT_EQ(::mkfifo(name.c_str(), 0600), 0);
  refuses("what is no file");
  fs::create_directory(name);
  refuses("what is no file");
  fs::create_hard_link(mine, name);
  refuses("a file of several names");
  EXPECT_EQ(*read_file(mine, 100), "mine");
  EXPECT_EQ(*read_file(p, 100), "whole");
}

// A child that ends as if killed in the middle of writing.
void die_writing(const std::string& path, const std::string& bytes) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const testing::FullDisk disk(1000);
    const rlimit no_core = {0, 0};
    if (::setrlimit(RLIMIT_CORE, &no_core) != 0) ::_exit(1);
    ::signal(SIGXFSZ, SIG_DFL);
    (void)rewrite_file(path, bytes);
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGXFSZ);
}

TEST_F(Files, WhatKilledRunsLeftIsOneFileAndGoneAfterTheNext) {
  const std::string p = put("f", "old");
  const std::string bytes = bytes_of_length(100'000);
  for (int run = 0; run < 3; ++run) {
    ASSERT_NO_FATAL_FAILURE(die_writing(p, bytes));
    EXPECT_EQ(*read_file(p, 100), "old");
    EXPECT_EQ(count(), 2u);
  }
  ASSERT_TRUE(rewrite_file(p, bytes).ok());
  EXPECT_EQ(*read_file(p, 100'000), bytes);
  EXPECT_EQ(count(), 1u);
}

TEST_F(Files, AnOutputIsCheckedWithoutWriting) {
  EXPECT_TRUE(check_output(path("new")).ok());
  EXPECT_EQ(count(), 0u);
  EXPECT_TRUE(check_output(put("f", "old")).ok());
  EXPECT_TRUE(check_output("/dev/null").ok());
  for (const std::string& p : {path("absent/f"), path(""), path("new/")}) {
    const auto checked = check_output(p);
    ASSERT_FALSE(checked.ok()) << p;
    EXPECT_EQ(checked.error().message, write_file(p, "x").error().message);
  }
}

TEST_F(Files, DevicesAreWrittenStraight) {
  EXPECT_TRUE(write_file("/dev/null", "bytes").ok());
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

}  // namespace
}  // namespace tessera
