// run/compile_receipt.h: the receipt of a TPU kernel that was compiled and not
// run.
#pragma once

#include <string>

#include "receipt/receipt.h"
#include "tessera/dispatch.h"
#include "tessera/mosaic.h"

namespace tessera::run {

// What was compiled, and who chose its settings.
struct CompiledKernel {
  const Request& request;
  const MosaicKernel& kernel;
  std::string tile_by, passes_by;  // who chose tile and tiles a pass
  // The request as it was typed; a Request does not hold its facts.
  receipt::RequestText given = {};
  std::string plan_file = {};  // "": the request is not from a plan file
};

// The target and the compiler.
struct CompiledBy {
  std::string target;  // "v6e:1x1"
  receipt::Receipt::Plugin plugin;
  double compile_ms = 0;
  Machine machine;  // what the choice knew
};

// The receipt is sealed.
receipt::Receipt compile_receipt(const CompiledKernel& compiled,
                                 const CompiledBy& by);

}  // namespace tessera::run
