// base/crc32.cc: a byte at a time, through a table.
#include "base/crc32.h"

#include <array>

namespace tessera {
namespace {

constexpr uint32_t kPolynomial = 0xedb88320;  // bits reversed

constexpr std::array<uint32_t, 256> make_table() {
  std::array<uint32_t, 256> out = {};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) {
      rest = rest >> 1 ^ (rest & 1 ? kPolynomial : 0);
    }
    out[byte] = rest;
  }
  return out;
}

constexpr std::array<uint32_t, 256> kTable = make_table();

}  // namespace

uint32_t crc32(std::string_view bytes) {
  uint32_t rest = 0xffffffff;
  for (const char c : bytes) {
    rest = rest >> 8 ^ kTable[(rest ^ static_cast<unsigned char>(c)) & 0xff];
  }
  return ~rest;
}

}  // namespace tessera
