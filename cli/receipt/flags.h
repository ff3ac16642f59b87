// cli/receipt/flags.h: the flags of the command that a receipt records.
#pragma once

#include "cli/compile/kernel_flags.h"
#include "cli/run/flags.h"
#include "receipt/receipt.h"

namespace tessera::cli {

// The error of a receipt whose arrays are neither drawn nor in a file, so that
// the call cannot run again.
Error no_arrays();

// The flags of the request, the router and the arrays.
Result<RunFlags> flags_of(const receipt::Receipt& receipt);

// The flags of a kernel that was only compiled, without its device.
Result<KernelFlags> kernel_flags_of(const receipt::Receipt& receipt);

}  // namespace tessera::cli
