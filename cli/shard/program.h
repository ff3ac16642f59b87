// cli/shard/program.h: the program of all devices of a mesh: the memory of a
// chip, and the ops that libtpu schedules during its collectives.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/fit/report.h"
#include "schedule/collectives.h"
#include "tessera/fit.h"

namespace tessera::cli {

struct ProgramReport {
  bool backward = false;
  std::string target;  // compile target; "": not compiled
  FitReport fit;
  std::vector<schedule::Collective> collectives;  // of the compiled program
};

// With `with_compiler`, compiles the program for asked.chip if it fits. That is
// possible once per process.
Result<ProgramReport> report_program(const MeshFitCall& asked,
                                     bool with_compiler);

nlohmann::json collectives_json(
    const std::vector<schedule::Collective>& collectives);
nlohmann::json program_json(const ProgramReport& report);
std::string report_text(const ProgramReport& report);

}  // namespace tessera::cli
