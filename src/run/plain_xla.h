// run/plain_xla.h: XLA's programs that our kernels are measured against:
// dense, chunked and worklist.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tessera/session.h"

namespace tessera::run {

struct PlainXla {
  XlaMethod method;
  Session session;
};

// Opens a session for each method; `plugin` is set to the plugin's file name.
// If no plugin is available and none was asked for, the list is empty and
// `plugin` is set to the reason.
Result<std::vector<PlainXla>> open_plain_xla(
    const std::optional<std::string>& asked, std::string& plugin);

}  // namespace tessera::run
