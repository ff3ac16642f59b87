// tessera/version.h: the version of Tessera. The build reads it from this file.
#pragma once

namespace tessera {

inline constexpr const char* kVersion = "0.1.0";

}  // namespace tessera
