// model/precision.h: a precision plan in words and as JSON.
#pragma once

#include <string>

#include "tessera/train.h"

namespace tessera::model {

std::string precision_json(const Precision& precision);
// "BF16: products, attention; F32: softmax, ..."
std::string precision_text(const Precision& precision);

}  // namespace tessera::model
