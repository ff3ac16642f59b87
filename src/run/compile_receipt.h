// run/compile_receipt.h: the receipt of a TPU kernel that was compiled and not
// run.
#pragma once

#include <string>

#include "receipt/receipt.h"
#include "tessera/dispatch.h"
#include "tessera/mosaic.h"

namespace tessera::run {

// What was compiled, and who asked for it.
struct CompiledKernel {
  const Request& request;
  const MosaicKernel& kernel;
  std::string tile_by, passes_by;  // who chose tile and tiles a pass
  // What was given of the request, beside what a Request holds: its facts.
  receipt::RequestText given = {};
  std::string plan_file = {};  // where the request came from one
};

// Where and by what.
struct CompiledBy {
  std::string target;  // "v6e:1x1"
  receipt::Receipt::Plugin plugin;
  double compile_ms = 0;
  Machine machine;  // what the choice knew
};

// Sealed.
receipt::Receipt compile_receipt(const CompiledKernel& compiled,
                                 const CompiledBy& by);

}  // namespace tessera::run
