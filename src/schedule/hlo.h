// schedule/hlo.h: which kernels a program runs, in which order, from libtpu's
// dump of its scheduled HLO. Kernels of the same code are dumped once.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/result.h"

namespace tessera::schedule {

// An instruction of a computation.
struct HloCall {
  std::string name;
  std::string opcode;
  // Opcode, result and operands with their layouts. Calls with the same
  // signature run code of the same length.
  std::string signature;
  std::vector<std::string> operands;
  // For an asynchronous copy between HBM and another memory: the bytes moved.
  int64_t bytes = 0;
  // For a collective or its start: the bytes of each operand on one device.
  std::vector<int64_t> sent;
  std::string body;  // computation of a loop or async call

  bool operator==(const HloCall&) const = default;
};

// "all-gather" for "all-gather" and "all-gather-start"; "" for other opcodes.
std::string_view collective_of(std::string_view opcode);

// The calls of a module's entry in scheduled order; an error if there is no
// entry.
Result<std::vector<HloCall>> parse_calls(std::string_view hlo);

// The module's other computations by name: bodies of loops, fusions.
using HloBodies = std::map<std::string, std::vector<HloCall>>;
HloBodies parse_bodies(std::string_view hlo);

}  // namespace tessera::schedule
