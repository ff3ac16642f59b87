// data/row_folder.cc: a folder of rows, whose files are there when all are.
#include <filesystem>

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
  if (fs::is_empty(path, error) && !error) return {};
  return invalid("data",
                 "a folder of rows must be new or empty, found files in {}",
                 in_quotes(path));
}

Result<int64_t> save_row_folder(const std::string& path,
                                const std::function<Result<Rows>()>& next) {
  if (auto e = check_row_folder(path); !e) return e.error();
  std::error_code error;
  const fs::path folder(path);
  const Unfinished aside(folder / data::kUnfinished);
  fs::create_directories(aside.path(), error);
  if (error) return not_written(error, folder);
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
