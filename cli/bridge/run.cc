// cli/bridge/run.cc: runs an exported operation as flags say.
#include "cli/bridge/run.h"

#include <utility>

#include "base/fail.h"
#include "base/text.h"
#include "cli/numbers.h"
#include "cli/progress.h"
#include "run/operation_receipt.h"

namespace tessera::cli {
namespace {

// The untrusted inputs, all read and checked before any work.
struct Asked {
  BridgeArtifact artifact;
  BridgeData data;
  run::OperationOptions options;
};

Result<Asked> read_all(const BridgeFlags& f) {
  Asked out;
  if (auto e = read_plugin_flags(f, out.options.bridge); !e) return e.error();
  auto seed = parse_seed(f.seed.value_or("0"));
  if (!seed) return seed.error();
  out.options.seed = *seed;
  out.options.check = f.check;
  if (f.seed && f.inputs) {
    return invalid("cli", "--seed goes without --inputs, found both");
  }
  auto artifact = load_artifact(*f.artifact, *f.shapes);
  if (!artifact) return artifact.error();
  out.artifact = std::move(*artifact);
  const BridgeSpec& spec = out.artifact.spec;
  if (f.check && !spec.attention) {
    return invalid("cli",
                   "--check needs an operation that the file of shapes "
                   "declares as attention, found {}",
                   in_quotes(spec.operation));
  }
  if (auto e = check_arrays_fit(spec); !e) return e.error();
  auto inputs = f.inputs ? read_bridge_inputs(*f.inputs, spec)
                         : draw_bridge_inputs(spec, *seed);
  if (!inputs) return inputs.error();
  out.data.inputs = std::move(*inputs);
  out.data.outputs = make_bridge_outputs(spec);
  return out;
}

}  // namespace

Result<BridgeOutcome> run_bridge(const BridgeFlags& f) {
  auto asked = read_all(f);
  if (!asked) return asked.error();
  BridgeSpec& spec = asked->artifact.spec;
  const auto inputs = asked->data.input_pointers();
  const auto outputs = asked->data.output_pointers();
  const run::OperationArrays arrays = {inputs, outputs};
  Progress progress("checking");
  asked->options.progress = progress.callback();
  auto ran = run::run_operation(asked->artifact, arrays, asked->options);
  if (!ran) return ran.error();
  auto receipt =
      run::operation_receipt(spec, arrays, *ran,
                             {*f.artifact, *f.shapes, f.inputs.value_or(""),
                              !f.inputs, asked->options.seed});
  return BridgeOutcome{std::move(receipt), std::move(spec),
                       std::move(asked->data)};
}

}  // namespace tessera::cli
