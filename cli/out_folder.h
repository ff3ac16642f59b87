// cli/out_folder.h: a folder that a command writes into, made before any work.
#pragma once

#include <string>
#include <vector>

#include "tessera/result.h"

namespace tessera::cli {

// Makes --out where there is none: the folders made, deepest first.
Result<std::vector<std::string>> make_folder(const std::string& out);

// That nothing lies in it which would be replaced, or be taken for its own.
Result<void> check_empty(const std::string& out);

// For a command that is refused later: of these, those that hold nothing go.
void remove_empty(const std::vector<std::string>& folders);

}  // namespace tessera::cli
