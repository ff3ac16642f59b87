// pjrt/place.h: what the lanes that run a plugin's programs share: where, how
// they get there, and a call there and back.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "pjrt/execute.h"
#include "tessera/xla.h"

namespace tessera::pjrt {

// One device of a plugin.
struct Place {
  const Client* client = nullptr;
  const Device* device = nullptr;
};

// `plugin` as open_plugin() takes it; the device by its number.
Result<Place> open_place(const std::string& plugin, int64_t device,
                         const ClientOptions& options = {});
XlaPlace describe(const Place& place);

// An array of the caller's.
struct HostArray {
  ArrayType type;
  const void* data = nullptr;
};

// Sends the arrays, runs the program, waits, and adds what both took. The
// results are still on the device.
Result<std::vector<Buffer>> send_and_execute(const Loaded& program,
                                             std::span<const HostArray> arrays,
                                             double& transfer_ms,
                                             double& run_ms);

}  // namespace tessera::pjrt
