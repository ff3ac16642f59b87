// data/row_folder.cc: a folder of rows, whose files are there when all are.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <filesystem>

#include "base/descriptor.h"
#include "base/fail.h"
#include "base/text.h"
#include "data/row_files.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

Error not_written(const std::error_code& error, const fs::path& path) {
  return io_error("data",
                  "a folder of rows must be writable, found '{}' for {}",
                  error.message(), in_quotes(path.string()));
}

// The folder aside, once it is this run's alone: what a run that was killed
// left there goes, one that still writes has locked it.
Result<int> lock_aside(const fs::path& path, const fs::path& folder) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) return not_written(error, folder);
  Descriptor lock(
      ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (lock.get() < 0) {
    return not_written({errno, std::generic_category()}, folder);
  }
  const bool locked = ::flock(lock.get(), LOCK_EX | LOCK_NB) == 0;
  if (!locked && errno != EWOULDBLOCK) {
    return not_written({errno, std::generic_category()}, folder);
  }
  // Whoever had it may have ended meanwhile, and taken the name away.
  struct stat ours {};
  struct stat named {};
  if (!locked || ::fstat(lock.get(), &ours) != 0 ||
      ::lstat(path.c_str(), &named) != 0 || ours.st_dev != named.st_dev ||
      ours.st_ino != named.st_ino) {
    return unavailable("data",
                       "a folder of rows must have one writer, found another "
                       "run for {}",
                       in_quotes(folder.string()));
  }
  // What it wrote may be there by now.
  if (auto e = check_row_folder(folder.string()); !e) return e.error();
  for (fs::directory_iterator at(path, error), end; !error && at != end;) {
    const fs::path old = at->path();
    at.increment(error);
    if (!error) fs::remove_all(old, error);
  }
  if (error) return not_written(error, folder);
  return lock.release();
}

// Takes what was written back, unless all of it is.
class Unfinished {
 public:
  explicit Unfinished(fs::path path) : path_(std::move(path)) {}
  Unfinished(const Unfinished&) = delete;
  Unfinished& operator=(const Unfinished&) = delete;
  ~Unfinished() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

}  // namespace

Result<void> check_row_folder(const std::string& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return {};
  if (!fs::is_directory(path, error)) {
    return invalid("data",
                   "a folder of rows must be a folder, found none for {}",
                   in_quotes(path));
  }
  bool clean = true;
  for (fs::directory_iterator at(path, error), end; !error && at != end;
       at.increment(error)) {
    // Of a run that was killed, or of one that save_row_folder will meet.
    clean = clean && at->path().filename() == data::kUnfinished &&
            fs::is_directory(at->symlink_status());
  }
  if (clean && !error) return {};
  return invalid("data",
                 "a folder of rows must be new or empty, found files in {}",
                 in_quotes(path));
}

Result<int64_t> save_row_folder(const std::string& path,
                                const std::function<Result<Rows>()>& next) {
  if (auto e = check_row_folder(path); !e) return e.error();
  std::error_code error;
  const fs::path folder(path);
  const fs::path unfinished = folder / data::kUnfinished;
  auto locked = lock_aside(unfinished, folder);
  if (!locked) return locked.error();
  const Descriptor lock(*locked);
  const Unfinished aside(unfinished);
  std::vector<std::string> names;
  while (true) {
    auto rows = next();
    if (!rows) return rows.error();
    if (rows->rows == 0) break;
    names.push_back(fmt::format("rows-{:05}.safetensors", names.size()));
    if (auto e = save_rows(aside.path() / names.back(), *rows); !e) {
      return e.error();
    }
  }
  for (const std::string& name : names) {
    fs::rename(aside.path() / name, folder / name, error);
    if (error) return not_written(error, folder);
  }
  return static_cast<int64_t>(names.size());
}

}  // namespace tessera
