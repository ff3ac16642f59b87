// picture/losses.h: the losses of a training run, as SVG.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace tessera::picture {

// Of the steps from `first` on. Losses must be finite, and at least one.
std::string draw_losses(std::span<const double> losses, int64_t first,
                        std::string_view title);

}  // namespace tessera::picture
