// base/files.h: whole files in, whole files out.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/descriptor.h"
#include "tessera/result.h"

namespace tessera {

// A pipe does not say how long it is, so it gets a ceiling of its own.
inline constexpr int64_t kMaxPipeBytes = int64_t{1} << 28;

// Reads a regular file of at most `max_bytes`, or a pipe of at most
// kMaxPipeBytes too. Devices are refused: they may never end.
Result<std::string> read_file(const std::string& path, int64_t max_bytes);

// A regular file that is read where one likes.
class FileReader {
 public:
  Result<void> open(const std::string& path);
  int64_t size() const { return size_; }  // when it was opened
  // Bytes [begin, end); an error where the file has become shorter.
  Result<void> read(int64_t begin, int64_t end, char* to) const;

 private:
  std::string path_;
  Descriptor file_{-1};
  int64_t size_ = 0;
};

// Writes beside `path`, syncs, then renames: readers see the old file or the
// whole new one. A link is followed; a device or pipe is written straight.
Result<void> write_file(const std::string& path, std::string_view bytes);

// As much where something else writes the bytes, into an open file, and takes
// long: by one run at a time. What one that was killed left beside `path` is
// gone after the next.
using WriteFile = std::function<Result<void>(int descriptor)>;
Result<void> write_file_by(const std::string& path, const WriteFile& write);
// write_file, for a long run, which may be killed at any moment: what one left
// beside `path` is gone after the next.
Result<void> rewrite_file(const std::string& path, std::string_view bytes);

// Whether an open file, or folder, is still what has the name: who locked it
// may have waited for somebody who took the name away.
bool is_named(int descriptor, const std::string& path);

// How what a writer has not finished is called.
inline constexpr std::string_view kUnfinishedStart = ".tessera-";
inline constexpr std::string_view kUnfinishedEnd = ".tmp";
bool is_unfinished_name(std::string_view name);

// Whether write_file may succeed, for work that is long: it is told before.
Result<void> check_output(const std::string& path);

}  // namespace tessera
