// cli/compile/receipt.h: the receipt of a kernel that was only compiled.
#pragma once

#include "cli/compile/asked_kernel.h"
#include "cli/compile/report.h"
#include "run/compile_receipt.h"

namespace tessera::cli {

// The compile of `report`, on this machine.
run::CompiledBy compiled_by(const CompileTarget& target,
                            const CompileReport& report);

Result<receipt::Receipt> compile_receipt(const KernelFlags& flags,
                                         const AskedKernel& kernel,
                                         const run::CompiledBy& by);

}  // namespace tessera::cli
