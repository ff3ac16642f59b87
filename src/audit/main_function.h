// audit/main_function.h: the arguments and results of a program.
#pragma once

#include <vector>

#include "audit/program.h"

namespace tessera::audit {

struct MainFunction {
  uint32_t op = kNone;
  std::vector<AuditArray> arguments, results;
};
Result<MainFunction> read_main(const Program& p);

}  // namespace tessera::audit
