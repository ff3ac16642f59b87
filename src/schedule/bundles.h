// schedule/bundles.h: libtpu's dump of one kernel as plain structs: the final
// bundles and the slots that each bundle fills.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/result.h"

namespace tessera::schedule {

// In the order of libtpu's table. `fill` and `spill` are loads and stores of
// spilled registers; they are counted in `vload` and `vstore` too.
using Slot = uint8_t;
inline constexpr Slot kMatmul = 0;
inline constexpr Slot kMatpush = 1;
inline constexpr Slot kXlu = 2;
inline constexpr Slot kValu = 3;
inline constexpr Slot kVpop = 4;
inline constexpr Slot kEup = 5;
inline constexpr Slot kVload = 6;
inline constexpr Slot kFill = 7;
inline constexpr Slot kVstore = 8;
inline constexpr Slot kSpill = 9;
inline constexpr Slot kSalu = 10;
inline constexpr size_t kSlots = 11;
inline constexpr std::array<std::string_view, kSlots> kSlotNames = {
    "MATMUL", "MATPUSH",    "XLU",    "VALU",         "VPOP", "EUP",
    "VLOAD",  "VLOAD:FILL", "VSTORE", "VSTORE:SPILL", "SALU"};

using SlotCounts = std::array<int64_t, kSlots>;

// A jump to the start of the region with that number.
struct Branch {
  int64_t region = 0;
  bool always = false;
  // For a jump back: the trips of its loop, if the exit test has a constant.
  std::optional<int64_t> limit;

  bool operator==(const Branch&) const = default;
};

// A DMA that reads or writes HBM.
struct Transfer {
  std::optional<int64_t> granules;  // nothing: known only at run time
  bool reads = false;               // reads HBM; both for a copy inside HBM
  bool writes = false;
  bool predicated = false;
  bool window = false;  // moved by the vendor's pipeline around a grid

  bool operator==(const Transfer&) const = default;
};

struct Bundle {
  SlotCounts used{};
  std::optional<Branch> branch;
  std::vector<Transfer> transfers;
  std::vector<int64_t> starts;    // numbers of the regions that start here
  std::vector<uint32_t> sources;  // one for each op with a source
  bool pipeline = false;  // holds an index of the pipeline around a grid
  int64_t stalls = 0;     // cycles spent waiting for results, see stalls.h

  bool operator==(const Bundle&) const = default;
};

// A block of an operand that the pipeline moves.
struct Window {
  bool output = false;
  int64_t operand = 0;
  std::string dtype;
  std::vector<int64_t> shape;
  std::vector<int64_t> full;

  bool operator==(const Window&) const = default;
};

struct KernelText {
  std::string name;
  std::string opcode;  // HLO opcode, "custom-call", "fusion"; may be empty
  SlotCounts capacity{};
  std::vector<Bundle> bundles;
  std::vector<std::string> sources;  // "kernel.py:17", or a tag unchanged
  std::vector<Window> windows;       // by operand, inputs first
  std::vector<int64_t> grid;         // -1: known only at run time
  bool exits = false;                // the last bundle is marked as the exit

  bool operator==(const KernelText&) const = default;
};

// `bundles` is the text of <name>-NN-final_bundles.txt, `slots` that of
// <name>-NN-final_hlo-static-per-bundle-utilization.txt. Strict about
// structure: any unknown form is an error.
Result<KernelText> parse_kernel(std::string_view name, std::string_view bundles,
                                std::string_view slots);

}  // namespace tessera::schedule
