// cli/fit/command.cc: `tessera fit`: a call's memory on a chip, before launch.
#include "cli/command.h"

#include <fmt/format.h>

#include <memory>

#include "cli/fit/flags.h"
#include "cli/json_line.h"

namespace tessera::cli {
namespace {

struct Options {
  FitFlags fit;
  bool json = false;
};

Result<int> run(const Options& o) {
  auto fitted = fit_request(o.fit);
  if (!fitted) return fitted.error();
  if (o.json) {
    fmt::print("{}\n", json_line(fit_json(*fitted)));
  } else {
    fmt::print("{}", fit_text(*fitted));
  }
  return fit_code(*fitted);
}

constexpr const char* kFooter =
    "Examples:\n"
    "  tessera fit --mask 'causal & documents' --q-len 131072 --heads 32 \\\n"
    "      --kv-heads 8 --backward\n"
    "  tessera fit --lane mosaic --mask causal --q-len 16384 --compile\n"
    "  tessera fit --mask causal --q-len 1048576 --heads 64 --backward \\\n"
    "      --target v5e --max-steps 4194304\n"
    "  tessera fit --mask 'causal & documents' --q-len 32768 --docs \\\n"
    "      lengths:20000,12768 --lane mosaic --backward --mesh seq=4\n"
    "\n"
    "What does not fit exits with 1, and the error names the largest parts "
    "and\n"
    "the largest lengths, heads or batch that fit. Facts are not read, and "
    "open\n"
    "ceilings are the worst case of the lengths. What a chip of a mesh takes\n"
    "depends on facts: with --mesh they are read, and `tessera shard` says "
    "what\n"
    "travels. docs/memory.md has how each number is found.";

}  // namespace

Command fit_command() {
  auto o = std::make_shared<Options>();
  Command command{"fit", "What a call takes of a TPU's memory, before launch"};
  add_fit_flags(command, o->fit);
  add_flags(command, {{"--json", &o->json, "", "One JSON object on stdout"}});
  command.footer = kFooter;
  command.json_fields = fit_json_fields();
  command.work = [o] { return run(*o); };
  return command;
}

}  // namespace tessera::cli
