// cli/numbers.cc: parses a seed and a device.
#include "cli/numbers.h"

#include "request/numbers.h"

namespace tessera::cli {

Result<uint64_t> parse_seed(std::string_view text) {
  auto seed = request::parse_int(text, "--seed", 0, int64_t{1} << 62);
  if (!seed) return seed.error();
  return static_cast<uint64_t>(*seed);
}

Result<int64_t> parse_device(std::string_view text) {
  return request::parse_int(text, "--device", 0, kMaxDevices);
}

}  // namespace tessera::cli
