// lanes/splash/fits.h: whether a Splash kernel was exported for a request.
#pragma once

#include <optional>
#include <string>

#include "tessera/dispatch.h"

namespace tessera::splash {

// Why it was not; nothing where it was.
std::optional<std::string> misfit(const BridgeSplash& kernel,
                                  const RequestFeatures& features);
// Why the plan is beyond its ceilings. Distinct partial tiles are not known of
// a plan: prepare() holds those against `blocks`.
std::optional<std::string> misfit(const BridgeSplash& kernel,
                                  const PlanFacts& plan);

}  // namespace tessera::splash
