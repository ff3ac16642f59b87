// cli/compile/receipt.cc: makes a receipt from flags and a compile's report.
#include "cli/compile/receipt.h"

#include <utility>

namespace tessera::cli {

run::CompiledBy compiled_by(const CompileTarget& target,
                            const CompileReport& report) {
  run::CompiledBy by;
  by.target = target.target;
  by.plugin.file = report.plugin;
  by.plugin.api = report.api;
  by.plugin.platform = report.platform;
  by.plugin.device = target.target;
  by.compile_ms = report.compile_ms;
  by.machine = this_machine(false);
  by.machine.asked_plugins = true;
  by.machine.plugins = {{target.plugin, report.platform, 0}};
  return by;
}

Result<receipt::Receipt> compile_receipt(const KernelFlags& flags,
                                         const AskedKernel& asked,
                                         const run::CompiledBy& by) {
  const request::RequestFlags& typed = flags.run.request;
  run::CompiledKernel compiled = {asked.request, asked.kernel, asked.tile_by,
                                  asked.passes_by};
  if (typed.plan) {
    compiled.plan_file = *typed.plan;
  } else {
    auto given = request::request_text(typed);
    if (!given) return given.error();
    compiled.given = std::move(*given);
  }
  return run::compile_receipt(compiled, by);
}

}  // namespace tessera::cli
