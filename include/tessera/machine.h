// tessera/machine.h: what a machine has that can run attention: as plain data,
// so that it may describe one that is not here.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/result.h"

namespace tessera {

// Of the CPU, in ascending order of preference.
enum class Isa : uint8_t { portable, avx2, avx512, avx512bf16 };

std::string_view to_string(Isa isa);  // "avx512bf16"
Result<Isa> parse_isa(std::string_view text);
std::vector<Isa> machine_isas();  // what this machine can run

struct MachinePlugin {
  std::string name;      // as --plugin takes it
  std::string platform;  // "cpu", "tpu", "cuda"
  int64_t devices = 0;   // that run programs; 0: it compiles only
};
struct Machine {
  std::string cpu;            // its model
  int threads = 1;            // that this process may use
  std::vector<Isa> isas;      // in ascending order
  bool loads_plugins = true;  // the build can
  // Whether plugins were looked for: which takes asking Python.
  bool asked_plugins = true;
  std::vector<MachinePlugin> plugins;

  bool only_cpu() const;    // no plugin has a device that is none
  std::string key() const;  // names it in gate tables
};

// Looks at this machine. `plugins` false: those of the CPU are not looked for,
// and others only where a device file says that there is a device.
Machine this_machine(bool plugins);

}  // namespace tessera
