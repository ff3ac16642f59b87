// base/child.h: runs another program, for so long and no longer.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tessera/result.h"

namespace tessera {

struct ChildRun {
  std::string out, err;    // what it printed, up to the end or the limit
  bool timed_out = false;  // it was killed
  int exit_code = 0;       // 128 + the signal where one ended it
  double seconds = 0;
};

// `command[0]` is looked for as a shell does; `environment` is added to ours.
// The child reads nothing. It and all that it starts are gone on return.
Result<ChildRun> run_child(
    const std::vector<std::string>& command,
    const std::vector<std::pair<std::string, std::string>>& environment,
    double limit_seconds);

}  // namespace tessera
