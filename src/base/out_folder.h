// base/out_folder.h: a folder for output, which must be new or empty.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/result.h"

namespace tessera {

// For errors: who uses the folder, "schedule", and what the folder is, "a
// folder that keeps dumps".
struct OutFolderUse {
  std::string_view where, what;
};

// Whether the path, or a folder above it, is a dangling link. Systems report
// that such a link exists, and make no folder there.
bool leads_to_nothing(const std::string& path);

// Makes the folder if it is missing; returns the folders made, deepest first.
// An error if it holds anything, which could be replaced or be taken for
// output.
Result<std::vector<std::string>> make_out_folder(const OutFolderUse& use,
                                                 const std::string& folder);

// Calls make_out_folder(), then `write`. If `write` fails, the folders that
// were made and are empty are removed.
Result<void> write_out_folder(const OutFolderUse& use,
                              const std::string& folder,
                              const std::function<Result<void>()>& write);

}  // namespace tessera
