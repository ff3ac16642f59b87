// schedule/hlo.h: which kernels a program runs, in which order, from libtpu's
// dump of its scheduled HLO. Kernels of the same code are dumped once.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/result.h"

namespace tessera::schedule {

// An instruction of the program's entry.
struct HloCall {
  std::string name;
  std::string opcode;
  // Its opcode, result and operands with their layouts: calls of one signature
  // run code of one length.
  std::string signature;
  std::vector<std::string> operands;
  // Of an asynchronous copy between HBM and another memory: what it moves.
  int64_t bytes = 0;

  bool operator==(const HloCall&) const = default;
};

// Of a module in the order of its schedule. An error where it has no entry.
Result<std::vector<HloCall>> parse_calls(std::string_view hlo);

}  // namespace tessera::schedule
