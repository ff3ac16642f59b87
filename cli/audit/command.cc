// cli/audit/command.cc: `tessera audit`.
#include "cli/command.h"

#include <fmt/format.h>

#include <cstdio>
#include <memory>

#include "base/fail.h"
#include "base/files.h"
#include "cli/audit/report.h"
#include "cli/json_line.h"

namespace tessera::cli {
namespace {

constexpr int64_t kMaxBytes = int64_t{1} << 28;

struct Options {
  std::string program;
  bool json = false;
};

Result<int> run(const Options& o) {
  auto text = read_file(o.program, kMaxBytes);
  if (!text) return text.error();
  auto audit = audit_program(*text);
  if (!audit) return in_file(audit.error(), o.program);
  if (o.json) {
    fmt::print("{}\n", json_line(audit_json(*audit)));
  } else {
    fmt::print("{}", audit_text(*audit));
  }
  return kOk;
}

constexpr const char* kFooter =
    "Examples:\n"
    "  tessera shard --mask causal --q-len 32768 --mesh seq=4 \\\n"
    "      --emit sharded.mlir\n"
    "  tessera audit sharded.mlir\n"
    "\n"
    "FILE is a StableHLO module as text: ours, or what JAX's "
    "lowered.as_text()\n"
    "gives. Every parameter and result of main, every boundary within\n"
    "(sdy.manual_computation, sdy.sharding_constraint, sdy.reshard) and every\n"
    "mesh must be there and fit; what is left to the compiler is refused by "
    "its\n"
    "name and line, exit code 2. The old mhlo.sharding is read too.";

}  // namespace

Command audit_command() {
  auto o = std::make_shared<Options>();
  Command command{"audit",
                  "Check that a program says how every array lies on its mesh"};
  add_flags(command, {
                         {"file", &o->program, "FILE",
                          "A StableHLO module as text", true},
                         {"--json", &o->json, "", "One JSON object on stdout"},
                     });
  command.footer = kFooter;
  command.json_fields = audit_json_fields();
  command.work = [o] { return run(*o); };
  return command;
}

}  // namespace tessera::cli
