// pjrt/handlers.h: gives a plugin code of ours that its programs may call.
#pragma once

#include <string>

#include "pjrt/client.h"

namespace tessera::pjrt {

// A typed handler of XLA's foreign functions, under the name that a custom call
// has, for the platform of the client. It must live as long as the process. A
// plugin without the extension is an error that names it. That one takes a
// handler does not mean that its programs find it.
Result<void> register_handler(const Client& client, const std::string& target,
                              void* handler);

}  // namespace tessera::pjrt
