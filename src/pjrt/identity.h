// pjrt/identity.h: what a compiled program is good for, and nothing else.
#pragma once

#include <string>

#include "pjrt/client.h"

namespace tessera::pjrt {

// The text of all that a serialized program depends on beside the program: the
// plugin's file and version, what it reads from the environment, platform and
// device, and, where the platform is this machine's CPU, the CPU's model and
// features and the cores there are. An error where something of it is unknown.
Result<std::string> identity_of(const Client& client, const Devices& devices);

// Which file this is, whatever its path: its build id where the linker gave it
// one, else its size, times and place on the disk.
Result<std::string> file_identity(const std::string& path);

}  // namespace tessera::pjrt
