// base/base64.h: encodes bytes as text.
#pragma once

#include <string>
#include <string_view>

namespace tessera {

std::string base64(std::string_view bytes);

}  // namespace tessera
