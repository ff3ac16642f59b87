// pjrt/handlers.h: registers our code as handlers that a plugin's programs may
// call.
#pragma once

#include <string>

#include "pjrt/client.h"

namespace tessera::pjrt {

// Registers a typed handler of XLA's foreign function interface, under the
// target name of a custom call, for the client's platform. The handler must
// live as long as the process. A plugin without the extension is an error that
// names it. Success does not mean that the plugin's programs find the handler.
Result<void> register_handler(const Client& client, const std::string& target,
                              void* handler);

}  // namespace tessera::pjrt
