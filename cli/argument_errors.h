// cli/argument_errors.h: arguments that are wrong, in words that help.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/command.h"

namespace tessera::cli {

// A flag that takes a value, with the next flag in its place.
std::optional<Error> missing_value(const Program& program,
                                   const std::vector<std::string>& arguments);

// What is wrong with arguments that the parser refused: the command, a flag, or
// what it says otherwise.
Error argument_error(const Program& program,
                     const std::vector<std::string>& arguments,
                     const Error& otherwise);

}  // namespace tessera::cli
