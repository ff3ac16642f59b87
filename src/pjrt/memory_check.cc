// pjrt/memory_check.cc: compares with what the system says is available.
#include "pjrt/memory_check.h"

#include "base/fail.h"
#include "receipt/machine.h"

namespace tessera::pjrt {
namespace {

// The check takes some 20 us, so small amounts skip it.
constexpr int64_t kAskAbove = int64_t{64} << 20;

}  // namespace

Result<void> check_memory(const Client& client, int64_t bytes,
                          std::string_view rule) {
  if (bytes < kAskAbove || client.platform() != "cpu") return {};
  const int64_t available = receipt::available_memory();
  if (bytes <= available) return {};
  return over_limit("pjrt", "{}, found {} bytes for {} available", rule, bytes,
                    available);
}

}  // namespace tessera::pjrt
