// cli/compile/flags.cc: which flags go together.
#include "cli/compile/flags.h"

#include <utility>
#include <vector>

#include "base/fail.h"
#include "cli/request/file_checks.h"

namespace tessera::cli {
namespace {

Result<void> check_together(const CompileFlags& o, bool asked) {
  if (o.program.has_value() == asked) {
    return invalid("cli",
                   "compile must be given a program or a request, found {}",
                   asked ? "both" : "neither");
  }
  if (!asked) {
    KernelFlags others = o.kernel;
    others.run.request.target.reset();
    if (!(others == KernelFlags{})) {
      return invalid("cli",
                     "a program must come without flags of a request or a "
                     "kernel, found one");
    }
  }
  if (o.emit && !asked) {
    return invalid("cli",
                   "--emit goes with a request, found it with a "
                   "program");
  }
  if (o.receipt && (!asked || o.no_compile)) {
    return invalid("cli", "--receipt goes with a request, found it with {}",
                   asked ? "--no-compile" : "a program");
  }
  if (o.receipt && o.kernel.sink_telemetry) {
    return invalid("cli",
                   "--receipt is of a forward or a backward kernel, found it "
                   "with --sink-telemetry");
  }
  if (o.no_compile && (!o.emit || o.out)) {
    return invalid("cli",
                   "--no-compile goes with --emit and without -o, found "
                   "{}",
                   o.out ? "-o" : "no --emit");
  }
  if (!o.kernel.run.request.target) {
    return invalid("cli", "--target must be given, found none (as v6e:1x1)");
  }
  return {};
}

Result<void> check_paths(const CompileFlags& o, bool asked) {
  std::vector<std::string> sources = request_files(o.kernel.run.request);
  if (o.program) sources.push_back(*o.program);
  std::vector<std::string> written = given_files({&o.out, &o.emit, &o.receipt});
  if (o.out && asked) written.push_back(contract_file(o));
  return check_files(std::move(sources), written);
}

}  // namespace

Result<void> check_flags(const CompileFlags& o) {
  const bool asked = asks_for_kernel(o.kernel);
  if (auto e = check_together(o, asked); !e) return e;
  return check_paths(o, asked);
}

std::string contract_file(const CompileFlags& o) { return *o.out + ".json"; }

}  // namespace tessera::cli
