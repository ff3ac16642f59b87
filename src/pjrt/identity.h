// pjrt/identity.h: identifies the plugin, device and machine that a compiled
// program is valid for.
#pragma once

#include <string>

#include "pjrt/client.h"

namespace tessera::pjrt {

// Text of all that a serialized program depends on besides the program: the
// plugin's file and version, the variables it reads, platform and device, and,
// if the platform is this machine's CPU, the CPU's model and features and the
// number of cores. An error if one of them is unknown.
Result<std::string> identity_of(const Client& client, const Devices& devices);

// Identifies a file, whatever its path: its build id if it has one, else its
// size, times and place on the disk.
Result<std::string> file_identity(const std::string& path);

}  // namespace tessera::pjrt
