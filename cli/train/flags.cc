// cli/train/flags.cc: names and help of the flags.
#include "cli/train/flags.h"

#include "cli/lowering.h"

namespace tessera::cli {
namespace {

void add_mesh_flags(Command& command, TrainFlags& f) {
  add_flags(
      command,
      {
          {"--mesh", &f.mesh, "data=N,head=K,seq=M",
           "Devices that share the rows of a step (data), the heads with the "
           "MLP's width, and the vocabulary where it divides (head), and the "
           "tokens of each row (seq) [one]"},
          {"--exchange", &f.exchange, "NAME",
           "How keys and values travel where seq divides tokens: gather (each "
           "device gets all of them), rounds (the tiles that its queries need, "
           "in static sizes) or ragged (no more tiles than needed, on TPUs). "
           "rounds and ragged need the spec xla or tpu; tpu has no gather "
           "[gather; rounds beside any of the next four flags]"},
          {"--balance", &f.balance, "NAME",
           "How rounds and ragged spread work: contiguous, headtail, rows "
           "(tokens lie where work is even) or tasks (tokens stay, attention "
           "moves) [rows]"},
          {"--ceilings", &f.ceilings, "TEXT",
           "Limits of a device, as log and receipt have them "
           "(rows=16,steps=128,kv=6:12:8; ';' between those of several masks), "
           "so that other rows have the same program. More is an error; a "
           "limit that is left open has room for all [what the steps of this "
           "run take]"},
          {"--work", &f.work, "TEXT",
           "Weight of a tile where work is spread, 1 to 1048576, by its class "
           "[partial=1,full=1]"},
          {"--evenness", &f.evenness, "TEXT",
           "With --balance rows or tasks: the most that a device may have, as "
           "a multiple of the mean, 1 to 1000 [work=1.05,tokens=1.02]"},
      });
}

void add_optimizer_flags(Command& command, TrainFlags& f) {
  add_flags(
      command,
      {
          {"--rate", &f.rate, "X", "The highest learning rate [3e-4]"},
          {"--warmup", &f.warmup, "N",
           "Steps up to the highest learning rate, which then falls along a "
           "cosine to a tenth [a twentieth of --steps]"},
          {"--max-norm", &f.max_norm, "X",
           "Largest norm of the gradients; longer ones are scaled down to it "
           "[1]"},
          {"--weight-decay", &f.weight_decay, "X",
           "Weight decay of matrices [0.1]"},
      });
}

void add_program_flags(Command& command, TrainFlags& f) {
  add_flags(
      command,
      {
          {"--dtype", &f.dtype, "TYPE",
           "Type of matrix products: f32 or bf16 [f32]"},
          {"--tile", &f.tile, "QxKV",
           "Tile of the scores [256x256; for the spec tpu 512x512]"},
          {"--lowering-reason", &f.lowering_reason, "TEXT",
           kLoweringReasonHelp},
          {"--max-compiles", &f.max_compiles, "N",
           "Most programs to compile; one more is an error, 0 is no limit [0]"},
          {"--recompute", &f.recompute, "",
           "Keep only the input of each block, and compute the rest again "
           "backward"},
      });
}

// The flags of a run's start and of its output files.
void add_state_flags(Command& command, TrainFlags& f) {
  add_flags(
      command,
      {
          {"--seed", &f.seed, "N",
           "Seed of the first parameters, not with --resume [0]"},
          {"--checkpoint", &f.checkpoint, "FILE",
           "File that keeps the state, .safetensors"},
          {"--every", &f.every, "N", "Steps between checkpoints [at the end]"},
          {"--resume", &f.resume, "FILE",
           "Checkpoint to go on from; one without moments is where a new run "
           "starts"},
          {"--picture", &f.picture, "FILE", "Draw the losses, as .svg"},
          {"--receipt", &f.receipt, "FILE", "Write the receipt of the run"},
          {"--save-program", &f.program, "FILE",
           "Write the step's StableHLO, as it is compiled"},
      });
}

// The flags of runs without a step.
void add_ahead_flags(Command& command, TrainFlags& f) {
  add_flags(
      command,
      {
          {"--compile-only", &f.compile_only, "",
           "Compile the step for a TPU that need not be here, and run nothing"},
          {"--target", &f.target, "TARGET",
           "The TPU of --compile-only, a chip for each device [v6e:1x1]"},
          {"--warm", &f.warm, "",
           "Compile the step into the folder of --cache for the run to come, "
           "and run nothing"},
      });
}

}  // namespace

void add_train_flags(Command& command, TrainFlags& f) {
  add_flags(
      command,
      {
          {"--data", &f.data, "FILE",
           "Packed rows: a file, or a folder as `tessera pack` writes", true},
          {"--model", &f.model, "FILE",
           "Sizes and settings as JSON [the checkpoint's, or a small one]"},
          {"--spec", &f.spec, "NAME",
           "Implementation of the slots: xla (attention over the plan's "
           "worklist), reference (over every pair), cpu (by our CPU kernels) "
           "or tpu (by our TPU kernels) [xla]"},
          {"--steps", &f.steps, "N",
           "Last step to reach; a resumed run counts its earlier steps [100]"},
          {"--rows", &f.rows, "N",
           "Rows of packed data in a step [the devices along data, else 1]"},
      });
  add_mesh_flags(command, f);
  add_optimizer_flags(command, f);
  add_program_flags(command, f);
  add_state_flags(command, f);
  add_ahead_flags(command, f);
  add_plugin_flags(
      command, f, kOptionsGroup,
      "A PJRT plugin's file or known name [lammps_jax_pjrt_cpu; for a TPU "
      "libtpu]");
  add_flags(command, {{"--json", &f.json, "", "One JSON object on stdout"}});
}

}  // namespace tessera::cli
