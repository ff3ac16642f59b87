// cli/numbers.cc: numbers that many commands take.
#include "cli/numbers.h"

namespace tessera::cli {

Result<uint64_t> parse_seed(std::string_view text) {
  auto seed = parse_int(text, "--seed", 0, int64_t{1} << 62);
  if (!seed) return seed.error();
  return static_cast<uint64_t>(*seed);
}

Result<int64_t> parse_device(std::string_view text) {
  return parse_int(text, "--device", 0, kMaxDevices);
}

}  // namespace tessera::cli
