// cli/schedule/flags.cc: names and help of the flags.
#include "cli/schedule/flags.h"

namespace tessera::cli {

void add_schedule_flags(Command& command, ScheduleFlags& f) {
  add_flags(
      command,
      {
          {"program", &f.program, "FILE",
           "A StableHLO module, as text or bytecode"},
          {"--dump", &f.dump, "FOLDER",
           "Read libtpu's dumps there in place of compiling; needs no plugin. "
           "With flags of our kernel, the dumps are of that kernel"},
          {"--keep", &f.keep, "FOLDER",
           "Leave libtpu's dumps there: a new or empty folder"},
          {"--plugin", &f.plugin, "PLUGIN",
           "The compiler: a path or a name [libtpu]"},
          {"--trips", &f.trips, "REGION=N",
           "How often a region runs in the whole kernel. Repeatable"},
          {"--picture", &f.picture, "FILE",
           "Draw slot use over the largest kernel's loop, as SVG"},
          {"--json", &f.json, "", "One JSON object on stdout"},
      });
  add_kernel_flags(command, f.kernel);
  for (Flag& flag : command.flags) {
    if (flag.names != std::string_view("--target")) continue;
    flag.about = "Compile for this, and count its cycles [v6e:1x1]";
  }
}

}  // namespace tessera::cli
