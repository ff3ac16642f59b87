// pjrt/vendor_error.h: converts a plugin's error to one of ours.
#pragma once

#include <string>
#include <string_view>

#include "tessera/result.h"

namespace tessera::pjrt {

// "RESOURCE_EXHAUSTED" for 8, "code 99" for an unknown code.
std::string code_name(int code);

// The useful part of the vendor's many lines, as one line of a few hundred
// bytes: no dumps of programs, no lines that repeat the first one.
std::string informative(std::string_view message);

// "[pjrt] <rule>, found <code>: <message> for <subject>"; the code sets the
// kind.
Error vendor_error(std::string_view rule, int code, std::string_view message,
                   std::string_view subject);

}  // namespace tessera::pjrt
