// lanes/splash/fits.h: whether a Splash kernel was exported for a request.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tessera/dispatch.h"

namespace tessera::splash {

// Why it was not; nothing where it was.
std::optional<std::string> misfit(const BridgeSplash& kernel,
                                  const RequestFeatures& features);
// Why the plan is beyond its ceilings. Distinct partial tiles are not known of
// a plan: prepare() holds those against `blocks`.
std::optional<std::string> misfit(const BridgeSplash& kernel,
                                  const PlanFacts& plan);
// Why its scores are out of the bounds of any lane on such devices: it
// multiplies q by the scale in q's dtype, and a TPU multiplies its float32 as
// bf16. Nothing where it rounds no more than they do.
std::optional<std::string> inexact(const BridgeSplash& kernel,
                                   std::string_view platform);

}  // namespace tessera::splash
