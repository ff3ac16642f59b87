// cli/given_flags.h: finds which flag was given, for errors that name it.
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

// The name of the first flag that is given; "" if none is.
std::string_view first_given(const std::vector<GivenFlag>& flags);

// The first given flag of a command, judged by the values that the flags point
// to: a string counts as given if it is not empty.
std::string first_given_of(const Command& command);
// The first given flag of those that `add` adds to a command.
template <class Flags, class Add>
std::string first_given_of(Flags flags, const Add& add) {
  Command command;
  add(command, flags);
  return first_given_of(command);
}

}  // namespace tessera::cli
