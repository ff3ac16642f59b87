// pjrt/vendor_error.h: a plugin's error as one of ours.
#pragma once

#include <string>
#include <string_view>

#include "tessera/result.h"

namespace tessera::pjrt {

// "RESOURCE_EXHAUSTED" for 8, "code 99" for what has no name.
std::string code_name(int code);

// What a person needs of the vendor's many lines, as one of a few hundred
// bytes: no dumps of programs, no lines that say what the first one said.
std::string informative(std::string_view message);

// "[pjrt] <rule>, found <code>: <message> for <subject>"; the code picks the
// kind.
Error vendor_error(std::string_view rule, int code, std::string_view message,
                   std::string_view subject);

}  // namespace tessera::pjrt
