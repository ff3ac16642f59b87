// cli/gate/report.h: the gate's table as JSON and in words.
#pragma once

#include <string>

#include "cli/gate/measure.h"

namespace tessera::cli {

// A table whose rows were made elsewhere.
std::string gate_table_json(const GateTable& table);
std::string gate_table_text(const GateTable& table);

std::string gate_table_json(const GateMeasured& measured,
                            const Machine& machine, bool quick);
std::string gate_table_text(const GateMeasured& measured,
                            const Machine& machine);

}  // namespace tessera::cli
