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
  // Its opcode, result and operands with their layouts: calls of one signature
  // run code of one length.
  std::string signature;
  std::vector<std::string> operands;
  // Of an asynchronous copy between HBM and another memory: what it moves.
  int64_t bytes = 0;
  // Of a collective or the start of one: each operand's bytes on one device.
  std::vector<int64_t> sent;
  std::string body;  // what a loop repeats, or an asynchronous call runs

  bool operator==(const HloCall&) const = default;
};

// "all-gather" of "all-gather" and "all-gather-start"; "" of other opcodes.
std::string_view collective_of(std::string_view opcode);

// Of a module's entry in the order of its schedule. An error where it has none.
Result<std::vector<HloCall>> parse_calls(std::string_view hlo);

// Its other computations by name: bodies of loops, fusions.
using HloBodies = std::map<std::string, std::vector<HloCall>>;
HloBodies parse_bodies(std::string_view hlo);

}  // namespace tessera::schedule
