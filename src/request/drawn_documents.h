// request/drawn_documents.h: packed documents of random lengths.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tessera/result.h"

namespace tessera::request {

// Lengths with sigma 1 and this mean, at least 1, the last one cut.
std::vector<int32_t> lognormal_ids(double mean, uint64_t seed, int64_t length);

// Ids [batch, length] of "mean=N,seed=N", either or none; row b is drawn with
// seed + b. `what` is how errors call it.
Result<std::vector<int32_t>> draw_documents(std::string_view arguments,
                                            std::string_view what,
                                            int64_t batch, int64_t length);

}  // namespace tessera::request
