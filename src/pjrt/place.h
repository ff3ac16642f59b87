// pjrt/place.h: shared by the lanes that run a plugin's programs: opening
// devices, and calls with host arrays.
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

// `plugin` is a path or a name, as for open_plugin(); `device` is a number.
Result<Place> open_place(const std::string& plugin, int64_t device,
                         const ClientOptions& options = {});
PluginPlace describe(const Place& place);

// Several consecutive devices of a plugin.
struct Places {
  const Client* client = nullptr;
  Devices devices;
};
Result<Places> take_devices(const Client& client, int64_t first, int64_t count);
// Opens a CPU plugin with as many devices as needed, unless options are given.
Result<Places> open_devices(const std::string& plugin, int64_t first,
                            int64_t count, const ClientOptions& options = {});

// An array in the caller's memory, or `sent`, already on the device.
struct HostArray {
  ArrayType type;
  const void* data = nullptr;
  const Buffer* sent = nullptr;
};

// Sends the arrays that are not on the device yet, runs the program, waits, and
// adds both times to the sums. The results stay on the device.
Result<std::vector<Buffer>> send_and_execute(const Loaded& program,
                                             std::span<const HostArray> arrays,
                                             double& transfer_ms,
                                             double& run_ms);

}  // namespace tessera::pjrt
