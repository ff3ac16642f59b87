// data/input_files.cc: checks input files, and digests their names and sizes.
#include "data/input_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>

#include "base/descriptor.h"
#include "base/digest.h"
#include "base/fail.h"
#include "base/text.h"

namespace tessera::data {

Result<void> check_file(const std::string& path, std::string_view what,
                        bool or_pipe) {
  struct stat about = {};
  if (stat(path.c_str(), &about) != 0 || access(path.c_str(), R_OK) != 0) {
    return unreadable(path);
  }
  const bool is_pipe = or_pipe && S_ISFIFO(about.st_mode);
  if (S_ISREG(about.st_mode) || is_pipe) return {};
  return io_error("data", "{} must be a file, found none for {}", what,
                  in_quotes(path));
}

Error unreadable(const std::string& path) {
  return io_error("data", "a file must be readable, found '{}' for {}",
                  reason(errno), in_quotes(path));
}

Error changed_input(const std::string& path) {
  return invalid("data",
                 "an input must not change while it is read, found another "
                 "size or time of change for {}",
                 in_quotes(path));
}

Result<void> check_file_number(const SourcePosition& position, size_t files) {
  if (position.file >= 0 && position.offset >= 0 &&
      position.file <= static_cast<int64_t>(files)) {
    return {};
  }
  return invalid("data", "a position must be in one of {} files, found {}",
                 files, position.file);
}

std::string digest_of_files(const std::vector<std::string>& files) {
  Digest digest;
  for (const std::string& file : files) {
    const std::string name = std::filesystem::path(file).filename().string();
    struct stat about = {};
    const bool is_there = stat(file.c_str(), &about) == 0;
    digest.add_text(name);
    // A missing file is reported when it is read.
    digest.add(int64_t{is_there ? about.st_size : -1});
  }
  return digest.hex();
}

}  // namespace tessera::data
