// cli/gate/report.h: the gate's table as JSON and text.
#pragma once

#include <string>

#include "tessera/dispatch.h"

namespace tessera::cli {

// Reports on a table that was read from a file.
std::string gate_table_json(const GateTable& table);
std::string gate_table_text(const GateTable& table);

struct GateReport {
  GateMeasured measured;
  Machine machine;
  double busy_cores = 0;  // cores that other processes used meanwhile
  bool quick = false;
};
std::string gate_table_json(const GateReport& report);
std::string gate_table_text(const GateReport& report);

}  // namespace tessera::cli
