// data/input_files.h: checks and identifies the files of documents.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/documents.h"

namespace tessera::data {

// An error unless the path is a readable regular file, or with or_pipe a pipe:
// a device may never end. Errors call the contents `what`.
Result<void> check_file(const std::string& path, std::string_view what,
                        bool or_pipe = false);

// The error for a file that the system cannot read; errno has the reason.
Error unreadable(const std::string& path);

// The error for a file that changed while it was read.
Error changed_input(const std::string& path);

// Checks that a position is in one of `files` files, or after the last.
Result<void> check_file_number(const SourcePosition& position, size_t files);

// A digest of the files' names without folders, their sizes and their order. It
// is the same on another machine, and changes when a file grows.
std::string digest_of_files(const std::vector<std::string>& files);

}  // namespace tessera::data
