// run/reason_needed.h: whether a choice ends at a lane that asks for a lowering
// reason.
#pragma once

#include <optional>
#include <string>

#include "tessera/dispatch.h"

namespace tessera::run {

// The error of the chosen lane if no lowering reason is given: a tile or a
// logical block is below the granule of a known TPU. Nothing if none is needed.
std::optional<std::string> reason_needed(const Choice& choice,
                                         const Request& request,
                                         const Machine& machine);

}  // namespace tessera::run
