// data/input_files.h: the files that documents come from: that they are there,
// and which they are.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tessera/documents.h"

namespace tessera::data {

// That a file of documents or rows, as `what` says, is there, and no device,
// which may never end; a pipe where it may be one.
Result<void> check_file(const std::string& path, std::string_view what,
                        bool or_pipe = false);

// Of a file that the system does not give, for the reason that errno has.
Error unreadable(const std::string& path);

// Of a file that was another when its reading began.
Error changed_input(const std::string& path);

// That a position among so many files is in one of them, or behind the last.
Result<void> check_file_number(const SourcePosition& position, size_t files);

// A digest of their names without folders, their sizes and their order: the
// same on another machine, and another where a file grew.
std::string digest_of_files(const std::vector<std::string>& files);

}  // namespace tessera::data
