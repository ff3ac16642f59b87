// cli/command.cc: adds flags to a command.
#include "cli/command.h"

#include <utility>

namespace tessera::cli {

void add_flags(Command& command, std::vector<Flag> flags) {
  add_flags(command, kOptionsGroup, std::move(flags));
}

void add_flags(Command& command, const char* group, std::vector<Flag> flags) {
  for (Flag& flag : flags) {
    flag.group = group;
    command.flags.push_back(std::move(flag));
  }
}

}  // namespace tessera::cli
