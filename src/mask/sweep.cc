// mask/sweep.cc: binds the facts and compiles the masks.
#include "mask/sweep.h"

#include <utility>

#include "base/trace.h"

namespace tessera::mask {

Result<Sweep> start_sweep(const Request& request, const Facts& facts) {
  const TraceSpan span("plan", "bind");
  auto bound = bind(request, facts);
  if (!bound) return bound.error();
  Sweep sweep{std::move(*bound), {}};
  for (const Mask& mask : request.masks) {
    auto program = compile(mask);
    if (!program) return program.error();
    sweep.programs.push_back(std::move(*program));
  }
  return sweep;
}

Sweep with_tile(const Sweep& sweep, Tile tile) {
  Sweep out = sweep;
  out.bound.tile = tile;
  return out;
}

Result<void> bind_again(const Request& request, const Facts& facts,
                        Sweep& sweep) {
  const TraceSpan span("plan", "bind");
  return bind(request, facts, sweep.bound);
}

}  // namespace tessera::mask
