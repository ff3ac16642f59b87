// request/read_facts.h: reads the facts of a batch from its flags.
#pragma once

#include <cstdint>

#include "receipt/request_fields.h"
#include "tessera/batch.h"
#include "tessera/result.h"

namespace tessera::request {

// Most document ids that a request may bring: batch rows times tokens.
inline constexpr int64_t kMaxIds = int64_t{1} << 32;

Result<void> read_facts(const receipt::RequestText& text,
                        const Request& request, OwnedFacts& facts);

}  // namespace tessera::request
