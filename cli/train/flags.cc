// cli/train/flags.cc: names and help of the flags.
#include "cli/train/flags.h"

#include "cli/lowering.h"

namespace tessera::cli {

void add_train_flags(Command& command, TrainFlags& f) {
  add_flags(
      command,
      {
          {"--data", &f.data, "FILE",
           "Packed rows: a file, or a folder as `tessera pack` writes", true},
          {"--model", &f.model, "FILE",
           "Sizes and settings as JSON [the checkpoint's, or a small one]"},
          {"--spec", &f.spec, "NAME",
           "Who fills the slots: xla (attention over the plan's worklist), "
           "reference (over every pair), cpu (by our CPU kernels) or tpu (by "
           "our TPU kernels) [xla]"},
          {"--steps", &f.steps, "N", "In all, with those resumed [100]"},
          {"--rows", &f.rows, "N", "Of each step [1]"},
          {"--mesh", &f.mesh, "data=N,head=K,seq=M",
           "Devices that the rows of a step, the heads (with the MLP's width, "
           "and the vocabulary where it divides) and the tokens of each row "
           "are "
           "divided among [one]"},
          {"--exchange", &f.exchange, "NAME",
           "Of tokens divided along seq: gather (each device gets all keys and "
           "values), rounds (tiles that its queries need, in static sizes), "
           "ragged (as many as must, on TPUs), these two of the specs xla and "
           "tpu, of which tpu has no gather [gather; rounds beside the next "
           "four]"},
          {"--balance", &f.balance, "NAME",
           "Of rounds and ragged: contiguous, headtail, rows (tokens lie where "
           "work is even), tasks (tokens stay, attention moves) [rows]"},
          {"--ceilings", &f.ceilings, "TEXT",
           "What a device may hold, as log and receipt have it "
           "(rows=16,steps=128,kv=6:12:8; ';' between those of several masks), "
           "so that other rows have the same program; more is an error, and "
           "what is left open has room for all [what the steps of this run "
           "take]"},
          {"--work", &f.work, "TEXT",
           "What a tile counts where work is spread, by its class "
           "[partial=1,full=1]"},
          {"--evenness", &f.evenness, "TEXT",
           "The most that a device of rows or tasks may have over the mean "
           "[work=1.05,tokens=1.02]"},
          {"--rate", &f.rate, "X", "The highest learning rate [3e-4]"},
          {"--warmup", &f.warmup, "N",
           "Steps up to it; it falls as a cosine to a tenth then [a "
           "twentieth]"},
          {"--max-norm", &f.max_norm, "X",
           "Longer gradients are scaled down to it [1]"},
          {"--weight-decay", &f.weight_decay, "X", "Of matrices [0.1]"},
          {"--dtype", &f.dtype, "TYPE", "Of products: f32 or bf16 [f32]"},
          {"--tile", &f.tile, "QxKV", "Of scores [256x256; of tpu 512x512]"},
          {"--lowering-reason", &f.lowering_reason, "TEXT",
           kLoweringReasonHelp},
          {"--max-compiles", &f.max_compiles, "N",
           "Programs to compile at most, else an error; 0 is no limit [0]"},
          {"--recompute", &f.recompute, "",
           "Keep only the input of each block, and compute the rest again "
           "backward"},
          {"--seed", &f.seed, "N", "Of the first parameters [0]"},
          {"--checkpoint", &f.checkpoint, "FILE",
           "Where to keep the state: .safetensors"},
          {"--every", &f.every, "N", "Steps between checkpoints [at the end]"},
          {"--resume", &f.resume, "FILE",
           "A checkpoint to go on from; without moments, to start from"},
          {"--picture", &f.picture, "FILE", "The losses as SVG"},
          {"--receipt", &f.receipt, "FILE", "The receipt of the run"},
          {"--save-program", &f.program, "FILE",
           "The step's StableHLO, as it is compiled"},
          {"--compile-only", &f.compile_only, "",
           "Compile the step for a TPU that need not be here, and run nothing"},
          {"--target", &f.target, "TARGET",
           "The TPU of --compile-only, a chip for each device [v6e:1x1]"},
          {"--warm", &f.warm, "",
           "Compile the step into the folder of --cache for the run to come, "
           "and run nothing"},
      });
  add_plugin_flags(
      command, f, kOptionsGroup,
      "A PJRT plugin's file or known name [xla_cpu_pjrt; of the spec cpu, and "
      "of a --mesh of CPUs, lammps_jax_pjrt_cpu; of a TPU libtpu]");
  add_flags(command, {{"--json", &f.json, "", "One JSON object on stdout"}});
}

}  // namespace tessera::cli
