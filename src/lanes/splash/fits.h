// lanes/splash/fits.h: whether a Splash kernel was exported for a request.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "tessera/dispatch.h"

namespace tessera::splash {

// Why the kernel does not fit the request; nullopt if it fits.
std::optional<std::string> misfit(const BridgeSplash& kernel,
                                  const RequestFeatures& features);
// Why the plan exceeds the kernel's ceilings; nullopt if it does not. Distinct
// partial tiles are not known of a plan: prepare() compares them with `blocks`.
std::optional<std::string> misfit(const BridgeSplash& kernel,
                                  const PlanFacts& plan);
// Why the kernel's scores exceed the error bounds of lanes on this platform;
// nullopt if they do not. The kernel multiplies q by the scale in q's dtype,
// and a TPU multiplies the kernel's float32 as bf16.
std::optional<std::string> inexact(const BridgeSplash& kernel,
                                   std::string_view platform);

}  // namespace tessera::splash
