// data/row_folder.cc: a folder of rows, whose files appear all at once.
#include "data/row_folder.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "base/fail.h"
#include "base/files.h"
#include "base/out_folder.h"
#include "base/text.h"
#include "data/arrow_component.h"
#include "data/row_files.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

Error not_written(const std::error_code& error, const fs::path& path) {
  return io_error("data",
                  "a folder of rows must be writable, found '{}' for {}",
                  error.message(), in_quotes(path.string()));
}

Error not_written(const fs::path& path) {
  return not_written({errno, std::generic_category()}, path);
}

// Makes and locks the subfolder; an error if another run has the lock.
Result<int> lock_aside(const fs::path& path, const fs::path& folder) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) return not_written(error, folder);
  Descriptor lock(
      ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (lock.get() < 0) return not_written(folder);
  const bool locked = ::flock(lock.get(), LOCK_EX | LOCK_NB) == 0;
  if (!locked && errno != EWOULDBLOCK) return not_written(folder);
  // The previous owner may have removed the subfolder before this lock.
  if (!locked || !is_named(lock.get(), path.string())) {
    return unavailable("data",
                       "a folder of rows must have one writer, found another "
                       "run for {}",
                       in_quotes(folder.string()));
  }
  return lock.release();
}

Result<void> move(const fs::path& from, const fs::path& to) {
  std::error_code error;
  // A file that appeared there meanwhile is not ours, and stays.
  if (fs::exists(fs::symlink_status(to, error))) {
    error = std::make_error_code(std::errc::file_exists);
  } else {
    fs::rename(from, to, error);
  }
  if (error) return not_written(error, to);
  return {};
}

// Makes the renames durable across a system crash.
void sync_folder(const fs::path& path) {
  const Descriptor folder(
      ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (folder.get() >= 0) (void)::fsync(folder.get());
}

// Whether a run was killed after it put this file in place. If a file of that
// name is in the subfolder as well, this one is not the run's.
bool is_placed(const fs::path& path) {
  const std::string name = path.filename().string();
  std::error_code error;
  return data::RowFolder::is_name(name) &&
         fs::is_regular_file(fs::symlink_status(path, error)) &&
         !fs::exists(fs::symlink_status(
             path.parent_path() / data::kUnfinished / name, error));
}

// The folder may have the subfolder, and entries that pass `may_be`.
Result<void> check_entries(const fs::path& path,
                           bool (*may_be)(const fs::path&)) {
  std::error_code error, unknown;
  bool clean = true;
  for (fs::directory_iterator at(path, error), end; !error && at != end;
       at.increment(error)) {
    const bool aside = at->path().filename() == data::kUnfinished &&
                       fs::is_directory(at->symlink_status(unknown));
    clean = clean && (aside || may_be(at->path()));
  }
  if (clean && !error) return {};
  return invalid("data",
                 "a folder of rows must be new or empty, found files in {}",
                 in_quotes(path.string()));
}

bool is_nothing(const fs::path& /*path*/) { return false; }

std::string name_in(std::string_view format, int64_t file) {
  return fmt::format("rows-{:05}.{}", file, format);
}

// Whether a run gives this name to files in the subfolder.
bool is_own(const std::string& name) {
  return name == data::kJournal || data::RowFolder::is_name(name) ||
         is_unfinished_name(name);
}

}  // namespace

Result<void> check_row_folder(const std::string& path) {
  if (path.empty()) {
    return invalid("data", "a folder of rows must have a name, found ''");
  }
  std::error_code error;
  if (leads_to_nothing(path)) {
    return io_error("data",
                    "a folder of rows must be a folder, found a link to "
                    "nothing for {}",
                    in_quotes(path));
  }
  if (!fs::exists(path, error)) return {};
  if (!fs::is_directory(path, error)) {
    return invalid("data",
                   "a folder of rows must be a folder, found none for {}",
                   in_quotes(path));
  }
  // A run may have been killed while it put its files in place.
  const fs::path journal = fs::path(path) / data::kUnfinished / data::kJournal;
  const bool begun = fs::is_regular_file(fs::symlink_status(journal, error));
  return check_entries(path, begun ? is_placed : is_nothing);
}

namespace data {

Result<void> check_row_format(std::string_view format) {
  const auto end = std::end(kRowFormats);
  if (std::find(std::begin(kRowFormats), end, format) == end) {
    return invalid("data",
                   "files of a folder of rows must be one of {}, found {} for "
                   "them",
                   fmt::join(kRowFormats, ", "), in_quotes(format));
  }
  if (format == kRowFormats[0]) return {};
  auto component = arrow_component();
  return component ? Result<void>() : component.error();
}

RowFolder::RowFolder(const std::string& path, std::string format, int lock)
    : folder_(path),
      aside_(folder_ / kUnfinished),
      format_(std::move(format)),
      lock_(lock) {}

Result<std::unique_ptr<RowFolder>> RowFolder::open(const std::string& path,
                                                   std::string format) {
  if (auto e = check_row_folder(path); !e) return e.error();
  const fs::path folder(path);
  auto lock = lock_aside(folder / kUnfinished, folder);
  if (!lock) return lock.error();
  std::unique_ptr<RowFolder> opened(
      new RowFolder(path, std::move(format), *lock));
  // Another run may have finished since the first check, and left its rows.
  if (auto e = check_row_folder(path); !e) return e.error();
  return opened;
}

fs::path RowFolder::aside(const std::string& name) const {
  return aside_ / name;
}

std::string RowFolder::name_of(int64_t file) const {
  return name_in(format_, file);
}

bool RowFolder::is_name(std::string_view name) {
  constexpr std::string_view kBegin = "rows-";
  const size_t dot = name.find('.');
  if (!name.starts_with(kBegin) || dot == std::string_view::npos ||
      std::find(std::begin(kRowFormats), std::end(kRowFormats),
                name.substr(dot + 1)) == std::end(kRowFormats)) {
    return false;
  }
  name = name.substr(kBegin.size(), dot - kBegin.size());
  return name.size() >= 5 && (name.size() == 5 || name[0] != '0') &&
         name.find_first_not_of("0123456789") == std::string_view::npos;
}

Result<void> RowFolder::take_back(int64_t most,
                                  std::span<const std::string_view> formats) {
  for (const std::string_view format : formats) {
    int64_t placed = 0;
    while (placed < most && is_placed(folder_ / name_in(format, placed))) {
      ++placed;
    }
    // Last file first: if this stops, the first files are still in place.
    while (placed-- > 0) {
      const std::string name = name_in(format, placed);
      if (auto e = move(folder_ / name, aside_ / name); !e) return e;
    }
  }
  return check_entries(folder_, is_nothing);
}

Result<void> RowFolder::keep(int64_t files) {
  std::set<std::string> kept;
  if (files > 0) kept.insert(kJournal);
  for (int64_t f = 0; f < files; ++f) kept.insert(name_of(f));
  std::vector<fs::path> old;
  std::error_code error, unknown;
  for (fs::directory_iterator at(aside_, error), end; !error && at != end;
       at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (kept.contains(name)) continue;
    if (fs::is_directory(at->symlink_status(unknown)) || !is_own(name)) {
      return invalid("data",
                     "the unfinished part of a folder of rows must hold a "
                     "run's own files alone, found {}",
                     in_quotes(at->path().string()));
    }
    old.push_back(at->path());
  }
  for (const fs::path& path : old) {
    if (!error) fs::remove(path, error);
  }
  if (error) return not_written(error, folder_);
  return {};
}

Result<void> RowFolder::finish(int64_t files) {
  for (int64_t f = 0; f < files; ++f) {
    const std::string name = name_of(f);
    if (auto e = move(aside_ / name, folder_ / name); !e) {
      // If this fails too, the next run moves them back.
      while (f-- > 0) (void)move(folder_ / name_of(f), aside_ / name_of(f));
      return e;
    }
  }
  sync_folder(folder_);
  clear();
  return {};
}

void RowFolder::clear() {
  std::error_code ignored;
  fs::remove_all(aside_, ignored);
}

}  // namespace data
}  // namespace tessera
