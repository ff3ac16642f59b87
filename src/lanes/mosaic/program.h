// lanes/mosaic/program.h: a whole StableHLO program around a kernel's text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lanes/mosaic/writer.h"

namespace tessera::mosaic {

// A call may use this much vector memory; the compiler's default is a fraction
// of what a core has.
inline constexpr int64_t kProgramVectorBytes = int64_t{96} << 20;

// `kernel` is the text of a function of these arguments, whose last `outputs`
// arrays are the program's results. The text stands in the program twice:
// encoded, as the compiler wants it, and readable, as comments at the end.
std::string program(std::string_view name,
                    const std::vector<Argument>& arguments, int outputs,
                    std::string_view kernel);

std::string base64(std::string_view bytes);

}  // namespace tessera::mosaic
