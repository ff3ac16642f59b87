// cli/warm/flags.cc: names and help of the flags.
#include "cli/warm/flags.h"

#include "cli/lowering.h"

namespace tessera::cli {

void add_warm_flags(Command& command, WarmFlags& f) {
  add_shape_flags(command, f.run, "f32, bf16 or f16 [f32]");
  add_flags(
      command,
      {
          {"--seeds", &f.seeds, "N",
           "With --docs lognormal: N batches, with seeds 0 to N - 1 [one]"},
          {"--specs", &f.specs, "FILE",
           "A request as a JSON file; may be given more than once"},
          {"--dlse", &f.dlse, "",
           "Take the log-sum-exp's gradient backward, as `tessera run` does"},
          {"--sink-telemetry", &f.run.sink_telemetry, "N",
           "Compile the program that tells of sinks too, as `tessera run` has "
           "it [off]"},
          {"--lane", &f.run.lane, "NAME",
           "xla, mosaic, or auto, which chooses for each batch [xla]"},
      });
  add_plugin_flags(command, f.run, kOptionsGroup,
                   "A PJRT plugin's file or known name [xla_cpu_pjrt, for a "
                   "--mesh lammps_jax_pjrt_cpu; for mosaic libtpu]",
                   "Folder that keeps what is compiled [TESSERA_CACHE, or the "
                   "user's cache folder]");
  add_mesh_flags(command, f.run);
  add_flags(
      command,
      {
          {"--method", &f.run.method, "NAME",
           "Method of the xla lane: worklist, chunked or dense [worklist]"},
          {"--max-compiles", &f.run.max_compiles, "N",
           "Most programs to compile; one more is an error that says what "
           "varied, 0 is no limit [0]"},
          {"--lowering-reason", &f.run.lowering_reason, "TEXT",
           kLoweringReasonHelp},
          {"--numbers", &f.run.numbers, "WHICH", kSessionNumbersHelp},
          {"--row-sum", &f.run.row_sum, "SUM", kRowSumHelp},
      });
}

}  // namespace tessera::cli
