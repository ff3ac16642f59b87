// request/random_inputs.h: arrays of random numbers, close to normal ones of
// mean 0 and variance 1. Value i of a stream depends on seed, stream and i
// alone: it is the same on every machine, in every layout, and in any order.
#pragma once

#include <cstdint>
#include <span>

#include "request/attention_data.h"
#include "tessera/attention.h"

namespace tessera::request {

enum class Stream : uint64_t { q = 1, k, v, dout, dlse, sink_logits };

float random_normal(uint64_t seed, Stream stream, uint64_t i);

// i counts in the order [batch, heads, tokens, dim].
void fill_random(const MutableTensorView& tensor, uint64_t seed, Stream stream);
void fill_random(std::span<float> values, uint64_t seed, Stream stream);

// q, k and v, and dout where there is a backward pass.
void fill_inputs(AttentionData& data, uint64_t seed);

}  // namespace tessera::request
