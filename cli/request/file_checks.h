// cli/request/file_checks.h: checks of a command's files before any work.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "request/load.h"

namespace tessera::cli {

// The values of the flags that were given.
std::vector<std::string> given_files(
    std::initializer_list<const std::optional<std::string>*> flags);

// All files that the flags of a request may read. The list may also have words
// that are no files; they do no harm.
std::vector<std::string> request_files(const request::RequestFlags& flags);

// Whether two paths are the same file, under any names. False for devices and
// pipes, which a command may both read and write.
bool is_same_file(const std::string& a, const std::string& b);

// Checks that each file in `written` can be written, and that none is the same
// file as another one in `read` or `written`, under any names.
Result<void> check_files(std::vector<std::string> read,
                         const std::vector<std::string>& written);

// A path and the flag that gave it.
struct NamedPath {
  const char* flag = "";
  std::string path;
};

Result<void> check_ending(const NamedPath& file, std::string_view ending);

// Checks that the file is not in the folder, neither by its name nor after
// links are resolved.
Result<void> check_outside(const NamedPath& file, const NamedPath& folder);

}  // namespace tessera::cli
