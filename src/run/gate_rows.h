// run/gate_rows.h: which rows of a gate's table keep a lane out, and the reason
// of a choice in words.
#pragma once

#include <string>

#include "tessera/dispatch.h"

namespace tessera::run {

// The first row that bars the lane from the request on this machine, or null.
const GateRow* barred(const GateTable& gate, LaneId lane,
                      const RequestFeatures& features, const Machine& machine);
// The first measured row whose verdict is that the lane's kernel wins in no
// shape class on this machine; predictions for the kernel then do not count.
const GateRow* denied(const GateTable& gate, LaneId lane,
                      const RequestFeatures& features, const Machine& machine);

// Why the lane of a row from barred() does not run.
std::string barred_words(const GateRow& row);
// Why the row chose its own kernel (`ours`), or XLA.
std::string row_words(const GateRow& row, bool ours);

}  // namespace tessera::run
