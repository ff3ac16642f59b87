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
          {"--head-dim", &f.head_dim, "N",
           "Dimension of queries and keys [128]"},
          {"--v-head-dim", &f.v_head_dim, "N",
           "Dimension of values [head-dim]"},
          {"--dtype", &f.dtype, "NAME", dtypes},
          {"--layout", &f.layout, "NAME",
           "Order of axes in memory and in files: bhsd, [batch, heads, tokens, "
           "dim], or bshd [bhsd]"},
          {"--scale", &f.scale, "X",
           "Scale of the scores [1 / sqrt(head-dim)]"},
          {"--softcap", &f.softcap, "X", "Cap of the scores, 0 is off [0]"},
          {"--sink-logits", &f.sink_logits, "",
           "Add one more logit to each head: the file's, or from the seed"},
          {"--backward", &f.backward, "",
           "Compute forward, then the gradients"},
      });
}

void add_mesh_flags(Command& command, RunFlags& f, const char* group) {
  add_flags(
      command, group,
      {
          {"--mesh", &f.mesh, "AXES",
           "Spread over as many devices, from --device on, in lanes xla and "
           "mosaic; data=2,seq=4 and the like (`tessera shard`)"},
          {"--balance", &f.balance, "NAME",
           "With --mesh: contiguous, headtail, rows or tasks [rows]"},
          {"--exchange", &f.exchange, "NAME",
           "With --mesh: rounds, gather, auto (on TPUs ragged), or ragged on "
           "TPUs [rounds]"},
          {"--ceilings", &f.ceilings, "TEXT",
           "With --mesh: limits of a shard, so that all batches are one "
           "contract; `tessera shard` says what one takes [the bucket of the "
           "batch]"},
          {"--work", &f.work, "TEXT",
           "With --mesh: weight of a tile, 1 to 1048576, by its class "
           "[partial=1,full=1]"},
          {"--evenness", &f.evenness, "TEXT",
           "With --mesh: the most that a shard may have, as a multiple of the "
           "mean, 1 to 1000; where it is more, less may have to travel "
           "[work=1.05,tokens=1.02]"},
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
                 "Seed of random inputs and of a sampled check [0]"},
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
           "A table of `tessera gate`, which goes before the rules of --lane "
           "auto"},
          {"--threads", &f.threads, "N",
           "Threads of the cpu lane [every core]"},
          {"--isa", &f.isa, "NAME",
           "portable, avx2, avx512, avx512bf16 or amx, which this machine "
           "must have [TESSERA_ISA, or the best]"},
      });
  add_plugin_flags(command, f, kRunGroup,
                   "Plugin of lanes xla, jax_bridge, splash or mosaic: a file "
                   "or a known name [xla_cpu_pjrt, for a --mesh "
                   "lammps_jax_pjrt_cpu; for mosaic libtpu]");
  add_mesh_flags(command, f, kRunGroup);
  add_flags(
      command, kRunGroup,
      {
          {"--method", &f.method, "NAME",
           "Method of the xla lane: worklist, chunked or dense [worklist]"},
          {"--max-compiles", &f.max_compiles, "N",
           "Most programs that lanes xla and mosaic compile; one more is an "
           "error, 0 is no limit [0]"},
          {"--lowering-reason", &f.lowering_reason, "TEXT",
           kLoweringReasonHelp},
          {"--numbers", &f.numbers, "WHICH", kSessionNumbersHelp},
          {"--row-sum", &f.row_sum, "SUM", kRowSumHelp},
          {"--artifact", &f.artifact, "FILE",
           "File that jax.export serialized, for --lane jax_bridge or splash"},
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

Result<RowSum> read_row_sum(const std::optional<std::string>& text) {
  return parse_row_sum(text.value_or("exact"), "--row-sum");
}

}  // namespace tessera::cli
