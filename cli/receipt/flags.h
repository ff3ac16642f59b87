// cli/receipt/flags.h: what was asked, by a receipt.
#pragma once

#include "cli/compile/kernel_flags.h"
#include "cli/run/flags.h"
#include "receipt/receipt.h"

namespace tessera::cli {

// That nobody but its caller has them.
Error no_arrays();

// Those of the request, the router and the arrays.
Result<RunFlags> flags_of(const receipt::Receipt& receipt);

// Of a kernel that was compiled and not run, but for its device.
Result<KernelFlags> kernel_flags_of(const receipt::Receipt& receipt);

}  // namespace tessera::cli
