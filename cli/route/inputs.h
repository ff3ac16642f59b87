// cli/route/inputs.h: reads q and k from files and writes picks to files.
#pragma once

#include <string>
#include <string_view>

#include "base/safetensors.h"
#include "request/attention_data.h"
#include "tessera/route.h"

namespace tessera::cli {

// Copies the tensor `name`: [batch, heads, tokens, dim] or another order, as
// `layout` says. A copy is needed because tensors in a file may be unaligned.
Result<request::Array> read_array(const Safetensors& file,
                                  std::string_view name,
                                  request::Layout layout);

// Writes picks; slots, union_start and union_blocks if there are unions; and
// run_picks if attention uses other picks.
Result<void> write_picks(const std::string& path, const Request& request,
                         const RouteResult& result);

}  // namespace tessera::cli
