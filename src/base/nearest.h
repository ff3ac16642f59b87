// base/nearest.h: the known word nearest to a mistyped one, for errors.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace tessera {

// Empty when nothing is near: more than a third of the word differs.
std::string nearest(std::string_view word,
                    std::span<const std::string_view> known);

}  // namespace tessera
