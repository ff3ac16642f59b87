// picture/losses.h: the losses of a training run, as SVG.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tessera::picture {

// Draws the losses of the steps from `first` on. There must be at least one
// loss, and all must be finite.
std::string draw_losses(std::span<const double> losses, int64_t first,
                        std::string_view title);

}  // namespace tessera::picture
