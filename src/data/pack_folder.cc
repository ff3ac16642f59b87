// data/pack_folder.cc: packs files of documents into a folder of rows. If a run
// is killed, another run resumes its work.
#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <limits>
#include <utility>

#include "base/descriptor.h"
#include "base/digest.h"
#include "base/fail.h"
#include "base/files.h"
#include "base/text.h"
#include "data/pack_journal.h"
#include "data/row_folder.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;
using data::PackedFile;
using data::RowFolder;

constexpr int64_t kMaxJournalBytes = int64_t{1} << 32;

Error unwritable(const fs::path& path) {
  return io_error("data", "rows must be written, found '{}' for {}",
                  reason(errno), in_quotes(path.string()));
}

Result<std::string> digest_of_file(const fs::path& path) {
  constexpr int64_t kPart = int64_t{1} << 20;
  FileReader file;
  if (auto e = file.open(path.string()); !e) return e.error();
  Digest digest;
  std::string part(static_cast<size_t>(kPart), '\0');
  for (int64_t at = 0; at < file.size(); at += kPart) {
    const int64_t end = std::min(file.size(), at + kPart);
    if (auto e = file.read(at, end, part.data()); !e) return e.error();
    digest.add(part.data(), static_cast<size_t>(end - at));
  }
  return digest.hex();
}

// Appends to the journal each file that the run has finished.
class Journal {
 public:
  Journal(fs::path path, size_t files)
      : path_(std::move(path)), files_(files), file_(-1) {}
  // The number of finished files, after which another run can resume.
  size_t files() const { return files_; }
  Result<void> begin(const Json& origin, const std::vector<PackedFile>& files) {
    std::string text = data::journal_line(origin);
    for (const PackedFile& file : files) text += data::journal_line(file);
    if (auto e = write_file(path_.string(), text); !e) return e;
    file_.reset(
        ::open(path_.c_str(), O_WRONLY | O_APPEND | O_NOFOLLOW | O_CLOEXEC));
    if (file_.get() < 0) return unwritable(path_);
    return {};
  }
  Result<void> add(const fs::path& path, int64_t rows, StreamPosition after) {
    if (file_.get() < 0) return {};  // no journal is kept
    std::error_code error;
    const auto bytes = fs::file_size(path, error);
    if (error) return unwritable(path);
    auto digest = digest_of_file(path);
    if (!digest) return digest.error();
    const PackedFile file{static_cast<int64_t>(bytes), std::move(*digest), rows,
                          std::move(after)};
    if (!write_all(file_.get(), data::journal_line(file)) ||
        ::fdatasync(file_.get()) != 0) {
      return unwritable(path_);
    }
    ++files_;
    return {};
  }

 private:
  fs::path path_;
  size_t files_;
  Descriptor file_;
};

// The files that a killed run has finished, if it ran with the inputs and
// options asked for now.
Result<std::vector<PackedFile>> finished_files(RowFolder& folder,
                                               const std::string& path,
                                               const Json& asked,
                                               bool restart) {
  const std::string file = folder.aside(data::kJournal).string();
  std::error_code error;
  const fs::file_status status = fs::symlink_status(file, error);
  const bool is_begun = fs::exists(status);
  data::PackJournal journal;
  if (fs::is_regular_file(status)) {  // nothing else is opened
    auto text = read_file(file, kMaxJournalBytes);
    if (!text) return text.error();
    journal = data::read_journal(*text);
  }
  const auto refuse = [&](std::string_view found) {
    return invalid("data",
                   "a folder that a run began must be resumed with the same "
                   "inputs, options and version, or restarted, found "
                   "{} in {}",
                   found, in_quotes(path));
  };
  if (is_begun && !restart) {
    if (!journal.origin) return refuse("a damaged journal");
    const std::string other = data::difference(asked, **journal.origin);
    if (!other.empty() && !journal.files.empty()) return refuse(other);
  }
  // After a system crash the journal may lack its last line, so there may be
  // one more file. If the journal is damaged, any number is possible.
  const int64_t listed = std::ssize(journal.files);
  const int64_t most = !journal.origin ? std::numeric_limits<int64_t>::max()
                       : listed > 0    ? listed + 1
                                       : 0;
  const std::string_view format =
      journal.origin ? data::format_of(**journal.origin) : "";
  auto taken = journal.origin ? folder.take_back(most, {&format, 1})
                              : folder.take_back(most, data::kRowFormats);
  if (!taken) return taken.error();
  if (restart) return std::vector<PackedFile>();
  // A file that was lost in a crash shows by its size.
  size_t whole = 0;
  for (; whole < journal.files.size(); ++whole) {
    const auto bytes = fs::file_size(
        folder.aside(folder.name_of(static_cast<int64_t>(whole))), error);
    if (error || static_cast<int64_t>(bytes) != journal.files[whole].bytes) {
      break;
    }
  }
  journal.files.resize(whole);
  return std::move(journal.files);
}

Result<RowStream> open_stream(const std::vector<std::string>& inputs,
                              const RowFolderOptions& options,
                              const PackedFile& from) {
  auto source = open_documents(inputs);
  if (!source) return source.error();
  (*source)->set_workers(options.workers);
  return RowStream::open(std::move(*source), options.stream, from.after);
}

// Checks the digests of finished files of the right size: adding more files
// after one that was changed would hide the change.
Result<void> check_unchanged(const RowFolder& folder,
                             const std::vector<PackedFile>& files) {
  for (size_t f = 0; f < files.size(); ++f) {
    const fs::path path = folder.aside(folder.name_of(static_cast<int64_t>(f)));
    const auto digest = digest_of_file(path);
    if (!digest) return digest.error();
    if (*digest != files[f].digest) {
      return io_error("data",
                      "a finished file must be unchanged (or start all again), "
                      "found digest {} for {} of {}",
                      *digest, files[f].digest, in_quotes(path.string()));
    }
  }
  return {};
}

// Passes the rows of finished files to options.each.
Result<void> show(const RowFolder& folder, int64_t files,
                  const RowFolderOptions& options) {
  for (int64_t f = 0; options.each && f < files; ++f) {
    auto rows = load_rows(folder.aside(folder.name_of(f)).string());
    if (!rows) {  // it is as it was written, so finished files are kept
      return io_error("data", "a finished file must be readable, found {}",
                      rows.error().message);
    }
    if (auto e = options.each(*rows); !e) return e;
  }
  return {};
}

// Writes all rows that are left, file by file; returns the number of files.
Result<int64_t> write_files(RowFolder& folder, int64_t files, RowStream& stream,
                            Journal& journal, const RowFolderOptions& options) {
  Result<Rows> rows{Rows{}};
  while (true) {
    rows = stream.next(options.rows_per_file, std::move(*rows));
    if (!rows) return rows.error();
    if (rows->rows == 0) return files;
    if (options.each) {
      if (auto e = options.each(*rows); !e) return e.error();
    }
    const fs::path path = folder.aside(folder.name_of(files));
    if (auto e = save_rows(path.string(), *rows); !e) return e.error();
    auto e = journal.add(path, rows->rows, stream.position());
    if (!e) return e.error();
    ++files;
  }
}

Result<PackedFolder> pack_on(RowFolder& folder,
                             const std::vector<std::string>& inputs,
                             const RowFolderOptions& options,
                             const data::PackOrigin& origin,
                             const std::vector<PackedFile>& finished,
                             Journal& journal, bool& last_failed) {
  PackedFolder out;
  out.resumed_files = static_cast<int64_t>(finished.size());
  const PackedFile from = finished.empty() ? PackedFile{} : finished.back();
  out.resumed_documents = from.after.counted.account.documents;
  for (const PackedFile& file : finished) out.resumed_rows += file.rows;
  if (auto e = check_unchanged(folder, finished); !e) return e.error();
  if (origin.stays) {
    if (auto e = journal.begin(origin.of, finished); !e) return e.error();
  }
  if (out.resumed_files > 0 && options.resumes) {
    options.resumes(out.resumed_rows);
  }
  if (auto e = show(folder, out.resumed_files, options); !e) return e.error();
  auto stream = open_stream(inputs, options, from);
  if (!stream) return stream.error();
  auto files =
      write_files(folder, out.resumed_files, *stream, journal, options);
  if (!files) return files.error();
  if (auto e = data::check_same_inputs(inputs, options, origin); !e) {
    return e.error();
  }
  const auto last = [&] {
    auto done = options.last ? options.last() : Result<void>();
    last_failed = !done;
    return done;
  };
  // A run from a pipe cannot be resumed, so its rows are put in place first.
  if (origin.stays) {
    if (auto e = last(); !e) return e.error();
  }
  if (auto e = folder.finish(*files); !e) return e.error();
  if (!origin.stays) {
    if (auto e = last(); !e) return e.error();
  }
  out.files = *files;
  out.report = stream->report();
  return out;
}

}  // namespace

Result<PackedFolder> pack_row_folder(const std::vector<std::string>& inputs,
                                     const std::string& path,
                                     const RowFolderOptions& options) {
  // Errors in the options or inputs are found before any work.
  if (auto e = data::check_row_format(options.format); !e) return e.error();
  if (auto e = open_stream(inputs, options, {}); !e) return e.error();
  if (options.rows_per_file < 1) {
    return invalid("data", "a file must have a row or more, found {} for it",
                   options.rows_per_file);
  }
  auto origin = data::pack_origin(inputs, options);
  if (!origin) return origin.error();
  auto folder = RowFolder::open(path, options.format);
  if (!folder) return folder.error();
  auto finished = finished_files(**folder, path, origin->of, options.restart);
  if (!finished) return finished.error();
  if (auto e = (*folder)->keep(std::ssize(*finished)); !e) return e.error();
  Journal journal((*folder)->aside(data::kJournal), finished->size());
  bool last_failed = false;
  auto packed = pack_on(**folder, inputs, options, *origin, *finished, journal,
                        last_failed);
  // An invalid input must change before the next try, so nothing is kept. Other
  // errors, such as a full disk, may pass, so finished files stay.
  if (!packed && !last_failed &&
      (packed.error().kind == ErrorKind::invalid || journal.files() == 0)) {
    (*folder)->clear();
  }
  return packed;
}

}  // namespace tessera
