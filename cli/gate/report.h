// cli/gate/report.h: the gate's table as JSON and in words.
#pragma once

#include <string>

#include "tessera/dispatch.h"

namespace tessera::cli {

// A table whose rows were made elsewhere.
std::string gate_table_json(const GateTable& table);
std::string gate_table_text(const GateTable& table);

struct GateReport {
  GateMeasured measured;
  Machine machine;
  double busy_cores = 0;  // by other programs meanwhile
  bool quick = false;
};
std::string gate_table_json(const GateReport& report);
std::string gate_table_text(const GateReport& report);

}  // namespace tessera::cli
