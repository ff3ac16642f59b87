// base/crc32.h: the checksum of zlib and of Ethernet.
#pragma once

#include <cstdint>
#include <string_view>

namespace tessera {

uint32_t crc32(std::string_view bytes);

}  // namespace tessera
