// schedule/dump.h: finds the kernels in a folder of libtpu's dumps.
#pragma once

#include <string>
#include <vector>

#include "schedule/bundles.h"

namespace tessera {

// Every kernel of the folder, in the order they were compiled. The program's
// own frame (TLP, <late-...>) is none. A folder without a kernel is an error.
Result<std::vector<KernelText>> read_dump(const std::string& folder);

}  // namespace tessera
