// lanes/mosaic/program.h: a whole StableHLO program around the kernel's text.
#pragma once

#include <string>
#include <string_view>

#include "lanes/mosaic/forward.h"

namespace tessera::mosaic {

// `kernel` is forward_kernel(shape). Its text stands in the program twice:
// encoded, as the compiler wants it, and readable, as comments at the end.
std::string forward_program(const ForwardShape& shape, std::string_view kernel);

std::string base64(std::string_view bytes);

}  // namespace tessera::mosaic
