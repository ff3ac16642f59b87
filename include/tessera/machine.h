// tessera/machine.h: what a machine has that can run attention, as plain data,
// so that it may describe one that is not here; and what its lanes may be told.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/result.h"

namespace tessera {

// Of the CPU, in ascending order of preference.
enum class Isa : uint8_t { portable, avx2, avx512, avx512bf16, amx };

std::string_view to_string(Isa isa);  // "avx512bf16"
Result<Isa> parse_isa(std::string_view text);
std::vector<Isa> machine_isas();  // what this machine can run

struct MachinePlugin {
  std::string name;      // as --plugin takes it
  std::string platform;  // "cpu", "tpu", "cuda"
  int64_t devices = 0;   // that run programs; 0: it compiles only
  // Of its TPUs, "v6e"; empty: not known, not one for all, or no TPU.
  std::string generation = {};
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

struct CpuOptions {
  // Threads to use; 0 is every core this process may use.
  int threads = 0;
  // Forced; one that this machine lacks is an error. Absent: TESSERA_ISA from
  // the environment where set, else the best one.
  std::optional<Isa> isa;
  // Called now and then by forward and backward, from the calling thread, with
  // the share of the work that is done, and with 1 at the end. It must not
  // throw. Empty: never.
  std::function<void(double)> progress;
};

// worklist: a loop over the plan's steps. chunked: online softmax over all
// columns of tiles. dense: all scores at a time. All three mean the same.
enum class XlaMethod : uint8_t { worklist, chunked, dense };
std::string_view to_string(XlaMethod method);
Result<XlaMethod> parse_xla_method(std::string_view text);

struct XlaOptions {
  // A path, or a known plugin's name. The mosaic lane takes libtpu in place of
  // this one.
  std::string plugin = "xla_cpu_pjrt";
  int64_t device = 0;  // its number among the plugin's
  // What the plugin is started with, "cpu_device_count=8": a whole number, a
  // number, true, false, or else a text.
  std::vector<std::string> client_options;
  XlaMethod method = XlaMethod::worklist;
  // Compiled programs are kept here for other processes; empty: nowhere.
  std::string cache_folder;
  int64_t max_cache_bytes = int64_t{1} << 30;
  // Compiles of this lane at most; one more is an error. 0: no limit.
  int64_t max_compiles = 0;
  // Why a tile or a logical block smaller than a TPU's matrix unit may be
  // lowered to it (tessera/lowering.h). A lane that was named alone, and takes
  // no tiles to a TPU, refuses one; any other without use for it does not look
  // at it.
  std::optional<std::string> lowering_reason = {};
};

// Where and by what a lane of a plugin runs.
struct PluginPlace {
  std::string plugin;            // its file
  std::string api;               // "0.81"
  std::string platform;          // "cpu"
  std::string platform_version;  // the plugin's own words
  std::string device;            // "cpu 0"
};

}  // namespace tessera
