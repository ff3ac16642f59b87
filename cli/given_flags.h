// cli/given_flags.h: which flag was given, for errors that name it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/command.h"

namespace tessera::cli {

struct GivenFlag {
  std::string_view name;  // "--tile"
  bool given = false;
};

// The first that is given, "" where none is.
std::string_view first_given(const std::vector<GivenFlag>& flags);

// The same of all flags of a command, by the values that they point to; a text
// counts where it is not empty.
std::string first_given_of(const Command& command);
// The same of the flags that `add` gives a command.
template <class Flags, class Add>
std::string first_given_of(Flags flags, const Add& add) {
  Command command;
  add(command, flags);
  return first_given_of(command);
}

}  // namespace tessera::cli
