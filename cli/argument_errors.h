// cli/argument_errors.h: error messages for wrong arguments.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/command.h"

namespace tessera::cli {

// The error of a flag that is followed by another flag instead of its value.
std::optional<Error> missing_value(const Program& program,
                                   const std::vector<std::string>& arguments);

// The error for arguments that the parser refused: an unknown command or flag,
// else `otherwise`, the parser's own error.
Error argument_error(const Program& program,
                     const std::vector<std::string>& arguments,
                     const Error& otherwise);

}  // namespace tessera::cli
