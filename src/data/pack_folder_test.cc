// data/pack_folder_test.cc: a folder of rows that several runs pack, each
// resuming the one before it.
#include "tests/pack_folder.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "base/descriptor.h"
#include "base/fail.h"
#include "base/files.h"
#include "data/arrow_component.h"
#include "data/pack_journal.h"
#include "data/row_files.h"
#include "data/row_folder.h"
#include "tests/temp_folder.h"

namespace tessera::data {
namespace {

namespace fs = std::filesystem;

using testing::PackFolder;

TEST_F(PackFolder, GoesOnToTheSameFiles) {
  int64_t seed = 0;
  for (const PackStrategy strategy :
       {PackStrategy::in_order, PackStrategy::first_fit, PackStrategy::best_fit,
        PackStrategy::by_cost}) {
    for (const LongDocuments rule :
         {LongDocuments::split, LongDocuments::drop}) {
      options_.stream.pack.strategy = strategy;
      options_.stream.pack.long_documents = rule;
      const auto whole = pack("whole");
      ASSERT_TRUE(whole) << whole.error().message;
      EXPECT_EQ(whole->report.ignored,
                (std::set<std::string>{"early", "name"}));
      EXPECT_EQ(whole->resumed_files, 0);
      ASSERT_GT(whole->files, 6);
      EXPECT_GT(whole->report.chunks.chunks_over, 0);
      // Stopped at some file, by one run or by many.
      for (const bool many : {false, true}) {
        const int64_t at = many ? whole->files - 1 : 1 + seed++ % 6;
        for (const int64_t files : {int64_t{2}, int64_t{5}, at}) {
          const bool stops = many || files == at;
          EXPECT_TRUE(!stops || !pack_files(files));
        }
        EXPECT_FALSE(RowFiles::open(out())) << "unfinished rows are no rows";
        int64_t told = 0, seen = 0;
        options_.resumes = [&](int64_t rows) { told = rows; };
        options_.each = [&](const Rows& rows) -> Result<void> {
          seen += rows.rows;
          return {};
        };
        const auto packed = pack();
        options_.resumes = {};
        options_.each = {};
        ASSERT_TRUE(packed) << packed.error().message;
        expect_same(*packed, *whole);
        EXPECT_EQ(packed->resumed_files, at);
        EXPECT_EQ(packed->resumed_rows, 7 * packed->resumed_files);
        EXPECT_EQ(told, packed->resumed_rows);
        EXPECT_EQ(seen, whole->report.account.rows);
        fs::remove_all(out());
      }
      fs::remove_all(out("whole"));
    }
  }
}

TEST_F(PackFolder, GoesOnAcrossFilesOfAllKinds) {
  if (auto found = arrow_component(); !found) {
    GTEST_SKIP() << found.error().message;
  }
  const std::vector<std::string> mixed = {folder_.file("a.jsonl"),
                                          "examples/sources.parquet",
                                          folder_.file("b.jsonl")};
  const auto whole = pack_row_folder(mixed, out("whole"), options_);
  ASSERT_TRUE(whole) << whole.error().message;
  for (int64_t at = 1; at < whole->files; at += 5) {
    RowFolderOptions stopped = options_;
    stopped.each = [left = at](const Rows&) mutable -> Result<void> {
      if (left-- > 0) return {};
      return io_error("test", "it must stop, found {}", "a stop");
    };
    ASSERT_FALSE(pack_row_folder(mixed, out(), stopped));
    const auto packed = pack_row_folder(mixed, out(), options_);
    ASSERT_TRUE(packed) << packed.error().message;
    EXPECT_EQ(packed->resumed_files, at);
    expect_same(*packed, *whole);
    fs::remove_all(out());
  }
}

// A crash at any moment: with a file half written, the journal cut anywhere, or
// some files put in place.
TEST_F(PackFolder, GoesOnFromWhateverIsLeft) {
  const auto whole = pack("whole");
  ASSERT_TRUE(whole) << whole.error().message;
  ASSERT_FALSE(pack_files(4));
  const Files left = files_of(out() + "/.unfinished");
  const std::string journal = left.at("journal");
  const size_t head = journal.find('\n') + 1;
  const auto lay = [&](const std::string& text) {
    fs::remove_all(out());
    fs::create_directories(out() + "/.unfinished");
    for (const auto& [name, bytes] : left) {
      ASSERT_TRUE(write_file(aside(name), name == "journal" ? text : bytes));
    }
  };
  const auto goes_on = [&](int64_t least, int64_t most) {
    const auto packed = pack();
    ASSERT_TRUE(packed) << packed.error().message;
    expect_same(*packed, *whole);
    EXPECT_GE(packed->resumed_files, least);
    EXPECT_LE(packed->resumed_files, most);
  };
  std::mt19937_64 random(7);
  for (int round = 0; round < 20; ++round) {
    const size_t at = head + random() % (journal.size() - head);
    std::string text = journal;
    const auto lines =
        std::count(journal.begin() + static_cast<int64_t>(head),
                   journal.begin() + static_cast<int64_t>(at), '\n');
    if (round % 2 == 0) {
      text.resize(at);
    } else {
      text[at] = static_cast<char>(text[at] ^ (1 + random() % 255));
    }
    lay(text);
    goes_on(lines, lines);
  }
  // A file that is lost, or has another size.
  lay(journal);
  fs::remove(aside("rows-00002.safetensors"));
  goes_on(2, 2);
  lay(journal);
  fs::resize_file(aside("rows-00001.safetensors"), 100);
  goes_on(1, 1);
  // Files that were being written, and files that the journal does not list.
  lay(journal);
  std::ofstream(aside("rows-00004.safetensors")) << "cut short";
  std::ofstream(aside(".tessera-1-2.tmp")) << "cut short";
  goes_on(4, 4);
  // Only the journal's first line, or no line.
  lay(journal.substr(0, head));
  goes_on(0, 0);
  lay(journal);
  fs::remove(aside("journal"));
  goes_on(0, 0);
}

TEST_F(PackFolder, GoesOnPuttingFilesInTheirPlace) {
  const auto whole = pack("whole");
  ASSERT_TRUE(whole) << whole.error().message;
  for (const int64_t placed :
       {int64_t{0}, int64_t{1}, whole->files - 1, whole->files}) {
    fs::remove_all(out());
    ASSERT_FALSE(pack_files(whole->files - 1));
    RowFolderOptions last = options_;
    // The journal after the last file is that of a complete run.
    std::string journal;
    last.each = [&, left = whole->files](const Rows&) mutable -> Result<void> {
      if (--left > 0) return {};
      journal = *read_file(aside("journal"), 1 << 20);
      return {};
    };
    ASSERT_TRUE(pack_row_folder(inputs(), out(), last));
    fs::create_directories(out() + "/.unfinished");
    ASSERT_TRUE(write_file(aside("journal"), journal));
    for (int64_t f = placed; f < whole->files; ++f) {
      const std::string name = fmt::format("rows-{:05}.safetensors", f);
      fs::rename(out() + "/" + name, aside(name));
    }
    // The journal lacks the last file, which is written again wherever it is.
    options_.stream.pack.seed = 1;
    refuses("seed 1 for 0");
    options_.stream.pack.seed = 0;
    const auto packed = pack();
    ASSERT_TRUE(packed) << packed.error().message;
    expect_same(*packed, *whole);
    EXPECT_EQ(packed->resumed_files, whole->files - 1);
    // A restart removes everything, whatever the journal says.
    for (const auto& text : {journal, std::string("damaged")}) {
      fs::create_directories(out() + "/.unfinished");
      ASSERT_TRUE(write_file(aside("journal"), text));
      options_.restart = true;
      const auto anew = pack();
      options_.restart = false;
      ASSERT_TRUE(anew) << anew.error().message;
      expect_same(*anew, *whole);
      EXPECT_EQ(anew->resumed_files, 0);
    }
  }
  // All was done except for removing the empty subfolder.
  fs::remove_all(out());
  ASSERT_TRUE(pack());
  fs::create_directories(out() + "/.unfinished");
  const auto rows = RowFiles::open(out());
  ASSERT_TRUE(rows) << rows.error().message;
  EXPECT_EQ(rows->rows(), whole->report.account.rows);
  EXPECT_FALSE(pack());
}

TEST_F(PackFolder, NeverMixesRowsOfOtherInputsOrOptions) {
  ASSERT_FALSE(pack_files(3));
  const RowFolderOptions same = options_;
  StreamOptions& s = options_.stream;
  const auto with = [&](const std::string& why, auto change) {
    options_ = same;
    change();
    refuses(why);
    options_ = same;
  };
  with("tokens 128 for 64", [&] { s.pack.tokens = 128; });
  with("strategy", [&] { s.pack.strategy = PackStrategy::in_order; });
  with("long", [&] { s.pack.long_documents = LongDocuments::keep_head; });
  with("window_rows", [&] { s.pack.window_rows = 6; });
  with("rows_per_step", [&] { s.pack.rows_per_step = 4; });
  with("mixing", [&] {
    s.pack.strategy = PackStrategy::by_cost;
    s.pack.mixing = 0.5;
  });
  with("seed", [&] { s.pack.seed = 2; });
  with("mask", [&] { s.pack.mask = *parse_mask("causal"); });
  with("tile", [&] { s.pack.tile = {16, 32}; });
  with("pad_id", [&] { s.pad_id = 1; });
  with("max_chunks", [&] { s.max_chunks = 10; });
  with("max_edges", [&] { s.max_edges = 10; });
  with("rows_per_file", [&] { options_.rows_per_file = 8; });
  if (arrow_component()) {
    with("format arrow for safetensors", [&] { options_.format = "arrow"; });
  }

  const auto other = [&](const std::vector<std::string>& inputs) {
    const auto packed = pack_row_folder(inputs, out(), options_);
    EXPECT_FALSE(packed);
    return packed ? "" : packed.error().message;
  };
  const std::string a = folder_.file("a.jsonl"), b = folder_.file("b.jsonl");
  EXPECT_NE(other({a}).find("1 inputs for 2"), std::string::npos);
  EXPECT_NE(other({b, a}).find("b.jsonl' of "), std::string::npos);
  // The same bytes with a later time; then other bytes of equal size and time.
  const auto written = fs::last_write_time(b);
  fs::last_write_time(b, written + std::chrono::nanoseconds(1000));
  refuses("b.jsonl' of ");
  fs::last_write_time(b, written);
  std::ofstream(b, std::ios::app) << "\n";
  fs::last_write_time(b, written);
  refuses("b.jsonl' of ");

  // A restart is allowed.
  options_.restart = true;
  const auto packed = pack();
  ASSERT_TRUE(packed) << packed.error().message;
  EXPECT_EQ(packed->resumed_files, 0);
  expect_same(*packed, *pack("whole"));
  // Rows that exist are not overwritten.
  EXPECT_FALSE(pack());
}

TEST_F(PackFolder, ADamagedJournalIsRefusedOrRestarted) {
  ASSERT_FALSE(pack_files(3));
  const std::string journal = *read_file(aside("journal"), 1 << 20);
  const size_t head = journal.find('\n') + 1;
  for (size_t at = 0; at < head; at += 1 + at / 2) {
    ASSERT_TRUE(write_file(aside("journal"), journal.substr(0, at)));
    refuses("a damaged journal");
    std::string text = journal;
    text[at] = static_cast<char>(text[at] ^ 1);
    ASSERT_TRUE(write_file(aside("journal"), text));
    refuses("a damaged journal");
  }
  // Invalid numbers with a valid digest.
  for (const char* line :
       {"{}", "[]", "{\"numbers\": [], \"options\": \"\", \"ignored\": []}",
        "{\"numbers\": [1, -2], \"options\": \"\", \"ignored\": [1]}"}) {
    EXPECT_EQ(read_journal(journal_line(Json(1)) + journal_line(Json(line)))
                  .files.size(),
              0u);
  }
  options_.restart = true;
  const auto packed = pack();
  ASSERT_TRUE(packed) << packed.error().message;
  expect_same(*packed, *pack("whole"));
}

TEST_F(PackFolder, AJournalIsReadAsItWasWritten) {
  PackedFile file;
  file.bytes = int64_t{1} << 52;
  file.digest = "of its bytes";
  file.rows = 3;
  file.after = {{1, 2, 3}, {4, 5, 0.1}, 6, "digest", "of files", {}};
  StreamCounts& counted = file.after.counted;
  counted.account = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  counted.chunks = {11, 12, 13, 14, 15, 16, 17, 24};
  counted.balance = {18, 19, 20, 21, 22, 23, 1.0 / 3, 1e300, 0, 5e-324};
  counted.ignored = {"a", "b \xc3\xa9"};
  const auto journal =
      read_journal(journal_line(Json("x")) + journal_line(file) +
                   journal_line(PackedFile{}) + "no line");
  ASSERT_TRUE(journal.origin);
  EXPECT_EQ(**journal.origin, Json("x"));
  ASSERT_EQ(journal.files.size(), 2u);
  EXPECT_EQ(journal.files[0], file);
  EXPECT_EQ(journal.files[1], PackedFile{});
}

// The fuzzer starts from this seed, so it must be a valid journal with files.
TEST_F(PackFolder, TheSeedOfTheJournalsFuzzerIsRead) {
  const auto text = read_file("tests/fuzz/corpus/pack_journal/whole", 1 << 20);
  ASSERT_TRUE(text) << text.error().message;
  const PackJournal journal = read_journal(*text);
  EXPECT_TRUE(journal.origin);
  EXPECT_EQ(journal.files.size(), 2u) << "made by: tests/fuzz/text_seeds.py";
}

// A run takes over what a killed run left; while another run writes there,
// nothing of it is touched.
TEST_F(PackFolder, HasOneWriterAtATime) {
  ASSERT_FALSE(pack_files(3));
  const Files left = files_of(out() + "/.unfinished");
  for (const bool restart : {false, true}) {
    options_.restart = restart;
    const Descriptor other(
        ::open((out() + "/.unfinished").c_str(), O_RDONLY | O_DIRECTORY));
    ASSERT_EQ(::flock(other.get(), LOCK_EX), 0);
    const auto refused = pack();
    ASSERT_FALSE(refused);
    EXPECT_TRUE(refused.error().message.starts_with(
        "[data] a folder of rows must have one writer, found another run for "))
        << refused.error().message;
    EXPECT_EQ(files_of(out() + "/.unfinished"), left);
  }
  // A second run started within a run is refused too.
  options_.restart = false;
  RowFolderOptions outer = options_;
  int refusals = 0;
  outer.each = [&](const Rows&) -> Result<void> {
    refusals += pack() ? 0 : 1;
    return {};
  };
  const auto packed = pack_row_folder(inputs(), out(), outer);
  ASSERT_TRUE(packed) << packed.error().message;
  EXPECT_EQ(refusals, packed->files);
  expect_same(*packed, *pack("whole"));
  // A subfolder that is a link is refused.
  fs::remove_all(out());
  fs::create_directories(out());
  const testing::TempFolder elsewhere;
  std::ofstream(elsewhere.file("kept")) << "mine";
  fs::create_directory_symlink(elsewhere.path(), out() + "/.unfinished");
  EXPECT_FALSE(pack());
  EXPECT_TRUE(fs::exists(elsewhere.file("kept")));
}

// If `last` fails, for example as it draws a picture, no rows are lost.
TEST_F(PackFolder, WhatComesLastIsBeforeTheFolderHasItsRows) {
  int64_t seen = 0;
  options_.each = [&](const Rows& rows) -> Result<void> {
    seen += rows.rows;
    return {};
  };
  options_.last = [&]() -> Result<void> {
    EXPECT_FALSE(RowFiles::open(out()));
    return io_error("test", "a disk must have room, found none");
  };
  EXPECT_FALSE(pack());
  EXPECT_FALSE(RowFiles::open(out()));
  const int64_t all = seen;
  seen = 0;
  int64_t at_last = -1;
  options_.last = [&]() -> Result<void> {
    at_last = seen;
    return {};
  };
  const auto packed = pack();
  ASSERT_TRUE(packed) << packed.error().message;
  EXPECT_EQ(packed->resumed_rows, all);
  EXPECT_EQ(at_last, all);
  options_.last = {};
  expect_same(*packed, *pack("whole"));
}

TEST_F(PackFolder, AnInputThatIsWrongLeavesNothing) {
  std::ofstream(inputs()[1], std::ios::app) << "{\n";
  const auto packed = pack();
  ASSERT_FALSE(packed);
  EXPECT_TRUE(fs::is_empty(out()));
  options_.rows_per_file = 0;
  EXPECT_FALSE(pack("none"));
  EXPECT_FALSE(fs::exists(out("none")));
}

}  // namespace
}  // namespace tessera::data
