// base/units.h: large numbers for readers.
#pragma once

#include <string>

namespace tessera {

std::string with_unit(double value);  // 40.1 M

}  // namespace tessera
