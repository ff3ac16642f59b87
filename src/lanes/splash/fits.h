// lanes/splash/fits.h: whether a Splash kernel was exported for a request.
#pragma once

#include <optional>
#include <string>

#include "tessera/dispatch.h"

namespace tessera::splash {

// Why it was not; nothing where it was. Of a batch's own arrays nothing is
// known here: prepare() holds them against the kernel's ceilings.
std::optional<std::string> misfit(const BridgeSplash& kernel,
                                  const RequestFeatures& features);

}  // namespace tessera::splash
