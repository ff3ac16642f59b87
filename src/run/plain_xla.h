// run/plain_xla.h: what our kernels are measured against: XLA's programs,
// of every score, of each query's in turn, and over the worklist.
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

// XLA's own programs; none, with the reason in `plugin`, where there is
// no plugin and none was asked for.
Result<std::vector<PlainXla>> open_plain_xla(
    const std::optional<std::string>& asked, std::string& plugin);

}  // namespace tessera::run
