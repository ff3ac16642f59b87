// receipt/digests.h: digests of what a lane was given and what it wrote.
#pragma once

#include <span>
#include <string>

#include "tessera/attention.h"
#include "tessera/facts.h"

namespace tessera::receipt {

std::string facts_digest(const Facts& facts);

// Rows are read in the order [batch, heads, tokens], whatever the layout.
std::string array_digest(const TensorView& tensor);
std::string array_digest(std::span<const float> values);

// One digest of out, lse and, after a backward pass, the gradients.
std::string outputs_digest(const ForwardTensors& forward,
                           const Gradients* gradients);

}  // namespace tessera::receipt
