// tessera/chips.h: the TPUs that are known here, as their makers publish them
// and as their compiler sees them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "tessera/result.h"

namespace tessera {

// A chip is one device or two.
struct Chip {
  std::string_view name;  // "v6e"
  int64_t hbm = 0;        // bytes of a chip, as its maker publishes
  int64_t devices = 1;    // that a chip is
  int64_t room = 0;       // bytes of a device for a program's arrays and code
  // Bytes of a core's own memory, VMEM or on v4 CMEM: what fits there the
  // compiler may keep out of HBM.
  int64_t core = 0;
  int64_t table = 0;        // a result's table of arrays is in multiples of it
  std::string_view target;  // the smallest that the compiler takes
  int64_t granule = 0;      // a side of its matrix unit
  std::string_view kind;    // what plugins call its devices: "TPU v6 lite"
};
std::span<const Chip> chips();
std::string chip_names();                       // "v4, v5e, ..."
Result<Chip> find_chip(std::string_view name);  // "v6e", or "v6e:2x2"
// Of a device by its kind, or as receipts name it, "TPU v6 lite 0". Nothing: it
// is none of them.
std::optional<Chip> chip_of_device(std::string_view device);

}  // namespace tessera
