// cli/run/flags.cc: names and help of the flags.
#include "cli/run/flags.h"

#include "cli/lowering.h"
#include "cli/trace_flag.h"

namespace tessera::cli {
namespace {

constexpr const char* kShapeGroup = "The arrays";
constexpr const char* kRunGroup = "The run";

}  // namespace

void add_shape_flags(Command& command, RunFlags& f, const char* dtypes,
                     const char* target_help) {
  add_request_flags(command, f.request, target_help);
  add_flags(
      command, kShapeGroup,
      {
          {"--heads", &f.heads, "N", "Query heads [8]"},
          {"--kv-heads", &f.kv_heads, "N", "Key and value heads [heads]"},
          {"--head-dim", &f.head_dim, "N", "Of queries and keys [128]"},
          {"--v-head-dim", &f.v_head_dim, "N", "Of values [head-dim]"},
          {"--dtype", &f.dtype, "NAME", dtypes},
          {"--layout", &f.layout, "NAME",
           "bhsd, [batch, heads, tokens, dim], or bshd, in memory and in files "
           "[bhsd]"},
          {"--scale", &f.scale, "X", "Of the scores [1 / sqrt(head-dim)]"},
          {"--softcap", &f.softcap, "X", "Cap of the scores, 0 is off [0]"},
          {"--sink-logits", &f.sink_logits, "",
           "One more logit a head: the file's, or from the seed"},
          {"--backward", &f.backward, "", "Forward, then the gradients"},
      });
}

void add_mesh_flags(Command& command, RunFlags& f, const char* group) {
  add_flags(
      command, group,
      {
          {"--mesh", &f.mesh, "AXES",
           "Of lanes xla and mosaic: spread over as many devices, from "
           "--device on; "
           "data=2,seq=4 and the like (`tessera shard`)"},
          {"--balance", &f.balance, "NAME",
           "With --mesh: contiguous, headtail, rows or tasks [rows]"},
          {"--exchange", &f.exchange, "NAME",
           "With --mesh: rounds, gather, auto (on TPUs ragged), or ragged on "
           "TPUs [rounds]"},
          {"--ceilings", &f.ceilings, "TEXT",
           "With --mesh: what a shard may hold, so that all batches are one "
           "contract; `tessera shard` says what one takes "
           "[the bucket of the batch]"},
          {"--work", &f.work, "TEXT",
           "With --mesh: what a tile counts, by its class [partial=1,full=1]"},
          {"--evenness", &f.evenness, "TEXT",
           "With --mesh: the most that a shard may have over the mean; where "
           "it is more, less may have to travel [work=1.05,tokens=1.02]"},
          {"--uneven", &f.uneven, "",
           "With --mesh: pad what an axis does not divide"},
      });
}

void add_run_flags(Command& command, RunFlags& f) {
  add_shape_flags(command, f, "f32, bf16 or f16 [f32]");
  add_flags(command, kShapeGroup,
            {
                {"--inputs", &f.inputs, "FILE",
                 ".safetensors with q, k, v and perhaps dout, dlse, "
                 "sink_logits; its shapes stand for flags [random]"},
                {"--seed", &f.seed, "N",
                 "Of random inputs and of a sampled check [0]"},
            });
  add_flags(
      command, kRunGroup,
      {
          {"--lane", &f.lane, "NAME",
           "cpu, reference (dense, fp64), xla (the compiler of a PJRT plugin), "
           "mosaic (our TPU kernel), jax_bridge (what JAX exported), splash "
           "(JAX's kernel under our plan): that lane or an error; or auto, as "
           "`tessera choose` explains [auto]"},
          {"--fallback", &f.fallback, "NAME[,NAME...]",
           "Lanes that may step in, in this order, where the lane does not "
           "start [none: that is an error]"},
          {"--gate", &f.gate, "FILE",
           "A table of `tessera gate`: goes before the rules of --lane "
           "auto"},
          {"--threads", &f.threads, "N", "Of the cpu lane [every core]"},
          {"--isa", &f.isa, "NAME",
           "portable, avx2, avx512, avx512bf16 or amx, which this machine "
           "must have [TESSERA_ISA, or the best]"},
      });
  add_plugin_flags(
      command, f, kRunGroup,
      "Of xla, jax_bridge, splash or mosaic: a file or a known name "
      "[xla_cpu_pjrt, of a --mesh lammps_jax_pjrt_cpu; of mosaic libtpu]");
  add_mesh_flags(command, f, kRunGroup);
  add_flags(
      command, kRunGroup,
      {
          {"--method", &f.method, "NAME",
           "Of the xla lane: worklist, chunked or dense [worklist]"},
          {"--max-compiles", &f.max_compiles, "N",
           "Of the xla lane, 0 is no limit: one more is an error [0]"},
          {"--lowering-reason", &f.lowering_reason, "TEXT",
           kLoweringReasonHelp},
          {"--numbers", &f.numbers, "WHICH", kSessionNumbersHelp},
          {"--artifact", &f.artifact, "FILE",
           "Of --lane jax_bridge or splash: what jax.export serializes"},
          {"--shapes", &f.shapes, "FILE", "The JSON beside the artifact"},
          {"--check", &f.check, "",
           "Compare with fp64: everything where it is small, else sampled "
           "rows"},
          {"--sink-telemetry", &f.sink_telemetry, "N",
           "Tell by document and head the mass on its first N keys, and the "
           "entropy; lanes cpu, xla, mosaic and reference [off]"},
          {"--outputs", &f.outputs, "FILE",
           "Write out, lse and the gradients to a .safetensors file"},
          {"--receipt", &f.receipt, "FILE", "Write the receipt, a JSON object"},
          {"--trace", &f.trace, "FILE", kTraceHelp},
      });
}

}  // namespace tessera::cli
