// cli/gate/flags.cc: the flags of `tessera gate`, and the sizes to measure.
#include "cli/gate/flags.h"

#include <set>
#include <utility>

#include "base/fail.h"
#include "base/text.h"
#include "cli/run/options.h"
#include "request/numbers.h"

namespace tessera::cli {

void add_gate_flags(Command& command, GateFlags& f, bool records) {
  add_flags(
      command,
      {
          {"--tokens", &f.tokens, "N[,N...]", "Lengths in tokens [1024,4096]"},
          {"--dtype", &f.dtype, "NAME[,NAME]", "f32, bf16 or both [both]"},
          {"--heads", &f.heads, "N", "Heads [8]"},
          {"--head-dim", &f.head_dim, "N", "Dimension of all arrays [128]"},
          {"--rounds", &f.rounds, "N",
           "Rounds of timing; the fastest counts [5]"},
          {"--plugin", &f.plugin, "NAME",
           "Plugin that compiles plain XLA: a file or a known name [that of "
           "the first device, else xla_cpu_pjrt]"},
          {"--artifact", &f.artifact, "FILE",
           "Splash's kernel as JAX exported it, to measure too, with ours at "
           "its sizes"},
          {"--shapes", &f.shapes, "FILE", "The JSON beside the artifact"},
          {"--rows", &f.rows, "FILE",
           "Measure nothing: check the rows of this table, as "
           "bench/predicted_gate.py makes them, and give each its kernel's "
           "verdict"},
          {"-o,--out", &f.out, "FILE", "Write the table as JSON"},
          {"--quick", &f.quick, "", "Measure tiny sizes, in one round"},
          {"--json", &f.json, "", "Print the table as JSON on stdout"},
      });
  if (!records) return;
  add_flags(command, {{"--record", &f.record, "",
                       "Write the table to bench/results/MACHINE/gate.json"}});
}

Result<GateSizes> read_sizes(const GateFlags& o) {
  GateSizes out;
  if (o.quick) {
    out.tokens = {256};
    out.heads = 2;
    out.head_dim = 64;
    out.decode_keys = {128, 512};
  }
  if (o.tokens) {
    auto tokens = request::parse_ints(*o.tokens, "--tokens", 64, 1 << 17);
    if (!tokens) return tokens.error();
    std::set<int32_t> lengths;
    for (const int32_t length : *tokens) {
      if (lengths.insert(length).second) continue;
      return invalid("cli", "--tokens takes each length once, found {} twice",
                     length);
    }
    out.tokens.assign(tokens->begin(), tokens->end());
  }
  if (o.dtype) {
    out.dtypes.clear();
    std::set<std::string_view> names;
    for (const std::string_view word : request::split(*o.dtype, ',')) {
      if (word != "f32" && word != "bf16") {
        return invalid("cli", "--dtype must be f32, bf16 or both, found {}",
                       in_quotes(word));
      }
      auto e = request::take_once(names, word, "cli", "--dtype");
      if (!e) return e.error();
      out.dtypes.push_back(word == "f32" ? Dtype::f32 : Dtype::bf16);
    }
  }
  if (o.heads) {
    auto heads = request::parse_int(*o.heads, "--heads", 1, 1024);
    if (!heads) return heads.error();
    out.heads = *heads;
  }
  if (o.head_dim) {
    auto dim = request::parse_int(*o.head_dim, "--head-dim", 8, 256);
    if (!dim) return dim.error();
    if (*dim % 8 != 0) {
      return invalid("cli", "--head-dim must be a multiple of 8, found {}",
                     *dim);
    }
    out.head_dim = *dim;
  }
  auto artifact = read_artifact(o.artifact, o.shapes);
  if (!artifact) return artifact.error();
  if (*artifact && !(*artifact)->spec.splash) {
    return invalid("cli", "--artifact must be Splash's kernel, found {}",
                   in_quotes((*artifact)->spec.name));
  }
  out.artifact = std::move(*artifact);
  return out;
}

}  // namespace tessera::cli
