// tessera/version.h: the version; the build reads it from here.
#pragma once

namespace tessera {

inline constexpr const char* kVersion = "0.1.0";

}  // namespace tessera
