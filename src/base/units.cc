// base/units.cc: large numbers for readers.
#include "base/units.h"

#include <fmt/format.h>

#include <cstddef>
#include <iterator>

namespace tessera {

std::string with_unit(double value) {
  constexpr const char* kUnits[] = {"", " k", " M", " G", " T", " P", " E"};
  size_t unit = 0;
  while (value >= 1000 && unit + 1 < std::size(kUnits)) {
    value /= 1000;
    ++unit;
  }
  return unit == 0 ? fmt::format("{:.0f}", value)
                   : fmt::format("{:.3g}{}", value, kUnits[unit]);
}

}  // namespace tessera
