// cli/request/file_checks.h: the files of one command, looked at before any
// work.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "request/load.h"

namespace tessera::cli {

// Those that were given.
std::vector<std::string> given_files(
    std::initializer_list<const std::optional<std::string>*> flags);

// All that the flags of a request may read; a word that is no file is harmless.
std::vector<std::string> request_files(const request::RequestFlags& flags);

// Whatever they are called. Never of a device or a pipe, which may be both read
// and written.
bool is_same_file(const std::string& a, const std::string& b);

// What is written can be, and takes the place of nothing else that is read or
// written, whatever it is called.
Result<void> check_files(std::vector<std::string> read,
                         const std::vector<std::string>& written);

// What a flag names.
struct NamedPath {
  const char* flag = "";
  std::string path;
};

Result<void> check_ending(const NamedPath& file, std::string_view ending);

// For a folder whose files belong together: where links lead counts, and so
// does the name.
Result<void> check_outside(const NamedPath& file, const NamedPath& folder);

}  // namespace tessera::cli
