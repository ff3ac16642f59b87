// request/drawn_documents.h: packed documents of random lengths.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "tessera/result.h"

namespace tessera::request {

// Ids of documents with lognormal lengths: sigma 1, this mean, at least 1
// token. The last document is cut at the end of the row.
std::vector<int32_t> lognormal_ids(double mean, uint64_t seed, int64_t length);

// Ids [batch, length] by "mean=N,seed=N", both optional; row b is drawn with
// seed + b. `what` names the source in errors.
Result<std::vector<int32_t>> draw_documents(std::string_view arguments,
                                            std::string_view what,
                                            int64_t batch, int64_t length);

}  // namespace tessera::request
