// base/child.h: runs another program with a time limit.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tessera/result.h"

namespace tessera {

struct ChildRun {
  std::string out, err;    // its output, up to the end or the limit
  bool timed_out = false;  // killed at the limit
  int exit_code = 0;       // 128 + signal if a signal ended it
  double seconds = 0;
};

// `command[0]` is looked up as by a shell; `environment` is added to this
// process's. The child's stdin is empty. On return its whole process group is
// gone.
Result<ChildRun> run_child(
    const std::vector<std::string>& command,
    const std::vector<std::pair<std::string, std::string>>& environment,
    double limit_seconds);

}  // namespace tessera
