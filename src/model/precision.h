// model/precision.h: a precision plan as JSON.
#pragma once

#include <string>

#include "tessera/train.h"

namespace tessera::model {

std::string precision_json(const Precision& precision);

}  // namespace tessera::model
