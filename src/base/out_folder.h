// base/out_folder.h: a folder that is written into: new, or empty.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/result.h"

namespace tessera {

// What it is to whom, for errors: "schedule", "a folder that keeps dumps".
struct OutFolderUse {
  std::string_view where, what;
};

// Whether there is nothing, for it or a folder above it is a link to nothing:
// systems say of those that they exist, and make nothing there.
bool leads_to_nothing(const std::string& path);

// Makes it where there is none: the folders made, deepest first. An error where
// anything lies in it, which would be replaced or be taken for its own.
Result<std::vector<std::string>> make_out_folder(const OutFolderUse& use,
                                                 const std::string& folder);

// That before any work, then what writes into it. Where this fails, what was
// made and holds nothing goes.
Result<void> write_out_folder(const OutFolderUse& use,
                              const std::string& folder,
                              const std::function<Result<void>()>& write);

}  // namespace tessera
