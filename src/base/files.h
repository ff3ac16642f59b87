// base/files.h: reads and writes whole files.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/descriptor.h"
#include "tessera/result.h"

namespace tessera {

// A pipe does not tell its length, so it has a limit of its own.
inline constexpr int64_t kMaxPipeBytes = int64_t{1} << 28;

// Reads a regular file of at most `max_bytes`, or a pipe of at most
// kMaxPipeBytes too. Devices are refused: they may never end.
Result<std::string> read_file(const std::string& path, int64_t max_bytes);

// A regular file that is read at any offset.
class FileReader {
 public:
  Result<void> open(const std::string& path);
  int64_t size() const { return size_; }  // at the time of open()
  // Reads bytes [begin, end); an error if the file has become shorter.
  Result<void> read(int64_t begin, int64_t end, char* to) const;

 private:
  std::string path_;
  Descriptor file_{-1};
  int64_t size_ = 0;
};

// Writes a temporary file beside `path`, syncs it and renames it: readers see
// the old file or the whole new one. A link is followed; a device or pipe is
// written directly.
Result<void> write_file(const std::string& path, std::string_view bytes);

// The same where `write` writes the bytes to an open file, possibly for long.
// Only one run at a time may write `path`; the temporary file of a killed run
// is removed by the next run.
using WriteFile = std::function<Result<void>(int descriptor)>;
Result<void> write_file_by(const std::string& path, const WriteFile& write);
// write_file() for a long run, which may be killed at any moment: its temporary
// file is removed by the next run.
Result<void> rewrite_file(const std::string& path, std::string_view bytes);

// Whether `path` still names the open file or folder: while this process waited
// for its lock, another may have renamed or removed it.
bool is_named(int descriptor, const std::string& path);

// The start and end of the names of unfinished files.
inline constexpr std::string_view kUnfinishedStart = ".tessera-";
inline constexpr std::string_view kUnfinishedEnd = ".tmp";
bool is_unfinished_name(std::string_view name);

// Checks whether write_file() can succeed, before long work starts.
Result<void> check_output(const std::string& path);

}  // namespace tessera
