// data/pack_folder_faults_test.cc: what runs keep, and what they do not touch,
// if a folder has other files or the run ends with an error.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "base/descriptor.h"
#include "base/fail.h"
#include "base/files.h"
#include "tests/pack_folder.h"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;

class PackFolderFaults : public testing::PackFolder {
 protected:
  // Makes a file that is not from a run, or a folder if the name ends with '/'.
  void take(const std::string& name) const {
    const std::string path = out() + "/" + name;
    if (name.ends_with("/")) {
      fs::create_directory(path);
    } else {
      std::ofstream(path) << "mine";
    }
  }
  // A run that finds the name taken when it puts its files in place.
  Result<PackedFolder> pack_where_taken(const std::vector<std::string>& inputs,
                                        const std::string& name) const {
    RowFolderOptions options = options_;
    options.each = [&](const Rows&) -> Result<void> {
      take(name);
      return {};
    };
    return pack_row_folder(inputs, out(), options);
  }
};

// Files that are not from a run are not moved or removed.
TEST_F(PackFolderFaults, TakesBackItsOwnFilesAlone) {
  const auto whole = pack("whole");
  ASSERT_TRUE(whole) << whole.error().message;
  for (const char* name : {"rows-00001.safetensors", "rows-00001.safetensors/",
                           "rows-mine", "rows-1.safetensors",
                           "rows-000001.safetensors", "rows-mine5.safetensors",
                           "rows-00003.safetensors", "rows-99999.safetensors",
                           "rows-00000.parquet", "rows-00003.arrow", "notes"}) {
    ASSERT_FALSE(pack_files(3));
    take(name);
    const Files before = files_of(out());
    const Files left = files_of(out() + "/.unfinished");
    for (const bool restart : {false, true}) {
      options_.restart = restart;
      const auto refused = pack();
      ASSERT_FALSE(refused) << name;
      EXPECT_TRUE(refused.error().message.starts_with(
          "[data] a folder of rows must be new or empty, found files in "))
          << refused.error().message;
      EXPECT_EQ(files_of(out()), before) << name;
      EXPECT_EQ(files_of(out() + "/.unfinished"), left) << name;
    }
    options_.restart = false;
    fs::remove_all(out());
  }
}

// Nothing is made at the target of a link.
TEST_F(PackFolderFaults, ALinkToNothingIsNoFolder) {
  const std::string absent = folder_.file("absent");
  fs::create_symlink(absent, out());
  for (const std::string& path : {out(), out() + "/", out() + "/in"}) {
    const auto refused = pack_row_folder(inputs(), path, options_);
    ASSERT_FALSE(refused) << path;
    EXPECT_EQ(refused.error().message,
              "[data] a folder of rows must be a folder, found a link to "
              "nothing for '" +
                  path + "'");
  }
  EXPECT_FALSE(fs::exists(absent));
  fs::create_directory(absent);
  EXPECT_TRUE(pack());
}

// Files in the subfolder that are not from a run are not removed either.
TEST_F(PackFolderFaults, TakesAwayWhatRunsMakeAlone) {
  const auto whole = pack("whole");
  ASSERT_TRUE(whole) << whole.error().message;
  for (const std::string name : {"notes", "notes/", "journal/"}) {
    for (const bool is_begun : {false, true}) {
      if (is_begun) {
        ASSERT_FALSE(pack_files(3));
        if (name == "journal/") fs::remove(aside("journal"));
      } else {
        fs::create_directories(aside(""));
      }
      take(".unfinished/" + name);
      const Files left = files_of(aside(""));
      options_.restart = true;
      const auto refused = pack();
      ASSERT_FALSE(refused) << name;
      EXPECT_EQ(refused.error().message,
                "[data] the unfinished part of a folder of rows must hold a "
                "run's own files alone, found '" +
                    aside(name.substr(0, name.find('/'))) + "'");
      EXPECT_EQ(files_of(aside("")), left) << name;
      options_.restart = false;
      fs::remove_all(out());
    }
  }
  // Files with the names of a run's own files do not matter.
  for (const char* const name :
       {".tessera-12-3.tmp", "rows-00007.safetensors"}) {
    ASSERT_FALSE(pack_files(3));
    take(std::string(".unfinished/") + name);
    const auto packed = pack();
    ASSERT_TRUE(packed) << packed.error().message;
    EXPECT_EQ(packed->resumed_files, 3);
    expect_same(*packed, *whole);
    fs::remove_all(out());
  }
}

// Only a regular file is opened as a journal: a pipe would wait for a writer.
TEST_F(PackFolderFaults, AJournalIsAFile) {
  const auto whole = pack("whole");
  ASSERT_TRUE(whole) << whole.error().message;
  for (const bool is_pipe : {true, false}) {
    ASSERT_FALSE(pack_files(3));
    const std::string copy = folder_.file("journal");
    fs::rename(aside("journal"), copy);
    const std::string bytes = *read_file(copy, 1 << 20);
    if (is_pipe) {
      ASSERT_EQ(::mkfifo(aside("journal").c_str(), 0600), 0);
    } else {
      fs::create_symlink(copy, aside("journal"));
    }
    const auto refused = pack();
    ASSERT_FALSE(refused);
    EXPECT_NE(refused.error().message.find("found a damaged journal in"),
              std::string::npos)
        << refused.error().message;
    options_.restart = true;
    const auto packed = pack();
    options_.restart = false;
    ASSERT_TRUE(packed) << packed.error().message;
    EXPECT_EQ(packed->resumed_files, 0);
    expect_same(*packed, *whole);
    EXPECT_EQ(*read_file(copy, 1 << 20), bytes);
    fs::remove_all(out());
  }
}

// A bit of a finished file changed, in its header or in a number of a row,
// which stays valid. All files are kept, whether rows are looked at or not.
TEST_F(PackFolderFaults, ADamagedFileLosesNoOther) {
  const auto whole = pack("whole");
  ASSERT_TRUE(whole) << whole.error().message;
  for (const bool is_head : {true, false}) {
    ASSERT_FALSE(pack_files(3));
    const std::string path = aside("rows-00001.safetensors");
    const std::string bytes = *read_file(path, 1 << 20);
    std::string damaged = bytes;
    char& at = damaged[is_head ? 9 : damaged.size() - 1];
    at = static_cast<char>(at ^ 1);
    std::ofstream(path, std::ios::binary) << damaged;
    const Files left = files_of(aside(""));
    for (const bool is_seen : {true, false}) {
      RowFolderOptions seen = options_;
      if (is_seen) seen.each = [](const Rows&) -> Result<void> { return {}; };
      const auto refused = pack_row_folder(inputs(), out(), seen);
      ASSERT_FALSE(refused) << is_head << is_seen;
      EXPECT_EQ(refused.error().kind, ErrorKind::io);
      EXPECT_TRUE(refused.error().message.starts_with(
          "[data] a finished file must be unchanged (or start all again), "
          "found digest "))
          << refused.error().message;
      EXPECT_EQ(files_of(aside("")), left);
    }
    // After it is restored, the next run resumes after it.
    std::ofstream(path, std::ios::binary) << bytes;
    const auto packed = pack();
    ASSERT_TRUE(packed) << packed.error().message;
    EXPECT_EQ(packed->resumed_files, 3);
    expect_same(*packed, *whole);
    fs::remove_all(out());
  }
}

// A file that takes a name meanwhile is kept, and so are the finished files.
TEST_F(PackFolderFaults, AFileThatCannotBePlacedLosesNothing) {
  const auto whole = pack("whole");
  ASSERT_TRUE(whole) << whole.error().message;
  for (const std::string name :
       {"rows-00000.safetensors/", "rows-00003.safetensors/",
        "rows-00003.safetensors"}) {
    const std::string bare = name.substr(0, name.find('/'));
    const auto failed = pack_where_taken(inputs(), name);
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().kind, ErrorKind::io);
    EXPECT_NE(failed.error().message.find("found 'File exists' for '" + out() +
                                          "/" + bare + "'"),
              std::string::npos)
        << failed.error().message;
    EXPECT_EQ(files_of(out()),
              (Files{{bare, name == bare ? "mine" : ""}, {".unfinished", ""}}));
    fs::remove(out() + "/" + bare);
    const auto packed = pack();
    ASSERT_TRUE(packed) << packed.error().message;
    EXPECT_EQ(packed->resumed_files, whole->files);
    expect_same(*packed, *whole);
    fs::remove_all(out());
  }
}

TEST_F(PackFolderFaults, KeepsWhatIsFinishedUnlessAnInputIsWrong) {
  for (const ErrorKind kind : {ErrorKind::io, ErrorKind::limit,
                               ErrorKind::unavailable, ErrorKind::stopped}) {
    ASSERT_FALSE(pack_files(3, kind));
    const auto packed = pack();
    ASSERT_TRUE(packed) << packed.error().message;
    EXPECT_EQ(packed->resumed_files, 3);
    fs::remove_all(out());
    // Without a finished file nothing is kept.
    ASSERT_FALSE(pack_files(0, kind));
    EXPECT_TRUE(fs::is_empty(out()));
  }
  ASSERT_FALSE(pack_files(3, ErrorKind::invalid));
  EXPECT_TRUE(fs::is_empty(out()));
}

// An input that changes would give rows of two versions, whether it changes
// before, during or after it is read.
TEST_F(PackFolderFaults, AnInputThatChangesMeanwhileLeavesNothing) {
  const auto whole = pack("whole");
  ASSERT_TRUE(whole) << whole.error().message;
  for (const std::string& input : inputs()) {
    for (const int64_t file : {int64_t{0}, whole->files - 1}) {
      RowFolderOptions options = options_;
      options.each = [&input, left = file](const Rows&) mutable {
        if (left-- == 0) std::ofstream(input, std::ios::app) << "\n";
        return Result<void>();
      };
      const auto packed = pack_row_folder(inputs(), out(), options);
      ASSERT_FALSE(packed);
      EXPECT_EQ(packed.error().kind, ErrorKind::invalid);
      EXPECT_EQ(packed.error().message,
                "[data] an input must not change while it is read, found "
                "another size or time of change for '" +
                    input + "'");
      EXPECT_TRUE(fs::is_empty(out()));
    }
  }
  const auto packed = pack();  // blank lines are not documents
  ASSERT_TRUE(packed) << packed.error().message;
  EXPECT_EQ(files_of(out()), files_of(out("whole")));
}

// A run from a pipe cannot be resumed, so nothing is kept.
TEST_F(PackFolderFaults, APipeIsReadOnce) {
  const std::string pipe = folder_.file("pipe");
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  const std::string text = *read_file(inputs()[0], 1 << 15);  // fits the pipe
  const auto fed = [&](auto run) {
    std::thread writer([&] {
      const Descriptor end(::open(pipe.c_str(), O_WRONLY));
      EXPECT_TRUE(write_all(end.get(), text));
    });
    const bool packed = run();
    writer.join();
    return packed;
  };
  RowFolderOptions stopped = options_;
  stopped.each = [&, left = 2](const Rows&) mutable -> Result<void> {
    EXPECT_FALSE(fs::exists(aside("journal")));
    if (left-- > 0) return {};
    return io_error("test", "it must stop, found {}", "a stop");
  };
  EXPECT_FALSE(
      fed([&] { return pack_row_folder({pipe}, out(), stopped).ok(); }));
  EXPECT_TRUE(fs::is_empty(out()));
  // If one file cannot be put in place, the files before it are removed too.
  EXPECT_FALSE(fed([&] {
    return pack_where_taken({pipe}, "rows-00003.safetensors/").ok();
  }));
  EXPECT_EQ(files_of(out()), (Files{{"rows-00003.safetensors", ""}}));
  // `last` is called after the rows are in place, and they stay.
  fs::remove(out() + "/rows-00003.safetensors");
  RowFolderOptions drawn = options_;
  drawn.last = []() -> Result<void> {
    return invalid("test", "a picture must be drawn, found {}", "none");
  };
  EXPECT_FALSE(fed([&] { return pack_row_folder({pipe}, out(), drawn).ok(); }));
  EXPECT_TRUE(RowFiles::open(out()));
}

}  // namespace
}  // namespace tessera::data
