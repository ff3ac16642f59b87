// run/gate_rows.h: which rows of a gate's table keep a lane out, and what rows
// say of a choice.
#pragma once

#include <string>

#include "tessera/dispatch.h"

namespace tessera::run {

// The first row that keeps the lane out of every request like this one here;
// null where none does.
const GateRow* barred(const GateTable& gate, LaneId lane,
                      const RequestFeatures& features, const Machine& machine);
// The first measured row that leaves the lane's kernel in no shape class ahead:
// what was predicted for it does not count on this machine.
const GateRow* denied(const GateTable& gate, LaneId lane,
                      const RequestFeatures& features, const Machine& machine);

// Why a lane that such a row keeps out does not run.
std::string barred_words(const GateRow& row);
// Why a row chose: its own kernel where that is `ours`, else XLA.
std::string row_words(const GateRow& row, bool ours);

}  // namespace tessera::run
