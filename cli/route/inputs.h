// cli/route/inputs.h: the files of the router: q and k in, picks out.
#pragma once

#include <string>
#include <string_view>

#include "base/safetensors.h"
#include "request/attention_data.h"
#include "tessera/route.h"

namespace tessera::cli {

// Tensor `name`, [batch, heads, tokens, dim] as the layout orders it, copied:
// bytes of a file are aligned to nothing.
Result<request::Array> read_array(const Safetensors& file,
                                  std::string_view name,
                                  request::Layout layout);

// picks, and slots, union_start and union_blocks where there are unions, and
// run_picks where attention runs on others.
Result<void> write_picks(const std::string& path, const Request& request,
                         const RouteResult& result);

}  // namespace tessera::cli
