// cli/compile/receipt.h: the receipt of a kernel that was compiled and not run.
#pragma once

#include "cli/compile/asked_kernel.h"
#include "cli/compile/report.h"
#include "receipt/receipt.h"
#include "tessera/dispatch.h"

namespace tessera::cli {

// Where and by what it was compiled.
struct CompiledBy {
  std::string target;  // "v6e:1x1"
  receipt::Receipt::Plugin plugin;
  double compile_ms = 0;
  Machine machine;  // what the choice knew
};

// On this machine, just now.
CompiledBy compiled_by(const CompileTarget& target,
                       const CompileReport& report);

Result<receipt::Receipt> compile_receipt(const KernelFlags& flags,
                                         const AskedKernel& kernel,
                                         const CompiledBy& by);

}  // namespace tessera::cli
