// pjrt/place.h: what the lanes that run a plugin's programs share: where, how
// they get there, and a call there and back.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "pjrt/execute.h"
#include "tessera/machine.h"

namespace tessera::pjrt {

// One device of a plugin.
struct Place {
  const Client* client = nullptr;
  const Device* device = nullptr;
};

// `plugin` as open_plugin() takes it; the device by its number.
Result<Place> open_place(const std::string& plugin, int64_t device,
                         const ClientOptions& options = {});
PluginPlace describe(const Place& place);

// Several devices of a plugin, one after the other.
struct Places {
  const Client* client = nullptr;
  Devices devices;
};
Result<Places> take_devices(const Client& client, int64_t first, int64_t count);
// A CPU is asked for as many as it takes, unless options are given.
Result<Places> open_devices(const std::string& plugin, int64_t first,
                            int64_t count, const ClientOptions& options = {});

// An array of the caller's, or one that is on the device already.
struct HostArray {
  ArrayType type;
  const void* data = nullptr;
  const Buffer* sent = nullptr;
};

// Sends the arrays that are not there yet, runs the program, waits, and adds
// what both took. The results are still on the device.
Result<std::vector<Buffer>> send_and_execute(const Loaded& program,
                                             std::span<const HostArray> arrays,
                                             double& transfer_ms,
                                             double& run_ms);

}  // namespace tessera::pjrt
