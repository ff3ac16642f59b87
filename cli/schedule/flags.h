// cli/schedule/flags.h: the flags of `tessera schedule`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/compile/kernel_flags.h"

namespace tessera::cli {

struct ScheduleFlags {
  KernelFlags kernel;
  std::optional<std::string> program, dump, keep, picture, plugin;
  std::vector<std::string> trips;
  bool json = false;
};

void add_schedule_flags(Command& command, ScheduleFlags& flags);

}  // namespace tessera::cli
