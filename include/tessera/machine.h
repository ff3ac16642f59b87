// tessera/machine.h: what a machine has that can run attention, as plain data,
// so that it may describe one that is not here; what its lanes may be told; and
// the TPUs that are known here, with what their matrix units pay for a tile.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/plan.h"
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

// Which numbers a TPU kernel of ours may read where no veto takes them.
enum class Numbers : uint8_t {
  finite,  // a promise: NaN or infinity would reach what it is illegal for
  any,     // it reaches what it is legal for and nothing else
};
std::string_view to_string(Numbers numbers);
Result<Numbers> parse_numbers(std::string_view text,
                              std::string_view name = "numbers");

// Of a cache on disk, where nobody says more or less.
inline constexpr int64_t kDefaultCacheBytes = int64_t{1} << 30;

struct XlaOptions {
  // A path, or a known plugin's name. Empty: the lane's own, of mosaic libtpu,
  // of others one for the CPU (docs/pjrt.md).
  std::string plugin;
  int64_t device = 0;  // its number among the plugin's
  // What the plugin is started with, "cpu_device_count=8": a whole number, a
  // number, true, false, or else a text.
  std::vector<std::string> client_options;
  XlaMethod method = XlaMethod::worklist;
  // Compiled programs are kept here for other processes; empty: nowhere.
  std::string cache_folder;
  int64_t max_cache_bytes = kDefaultCacheBytes;
  // Compiles of this lane at most; one more is an error. 0: no limit.
  int64_t max_compiles = 0;
  // Why a tile or a logical block smaller than a TPU's matrix unit may be
  // lowered to it (Lowering). A lane that was named alone, and takes no tiles
  // to a TPU, refuses one; any other without use for it does not look at it.
  std::optional<std::string> lowering_reason = {};
  // What the caller hands to lane mosaic: a promise of finite numbers saves its
  // kernels cycles (docs/mosaic.md). No other lane looks at it.
  Numbers numbers = Numbers::any;
};

// How often a plugin's programs were come by, and how.
struct CompileCounts {
  int64_t compiles = 0;                    // the compiler really ran
  int64_t memory_hits = 0, disk_hits = 0;  // else one of these

  void add_compiles(const CompileCounts& more) {
    compiles += more.compiles;
    memory_hits += more.memory_hits;
    disk_hits += more.disk_hits;
  }
};

// Where and by what a lane of a plugin runs.
struct PluginPlace {
  std::string plugin;            // its file
  std::string api;               // "0.81"
  std::string platform;          // "cpu"
  std::string platform_version;  // the plugin's own words
  std::string device;            // "cpu 0"
};

// The TPUs that are known here, as their makers publish them and as their
// compiler sees them.

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

// What a TPU's matrix unit pays for a tile, and why one that is smaller than
// the unit may be lowered to it (docs/mosaic.md).

// Pairs of a query and a key of so many tiles, and those of the whole granules
// around each: a product with a side of 128 takes a unit of 256 as one of 256
// does. It is arithmetic, not a measured time.
struct PaidWork {
  int64_t pairs = 0;
  int64_t paid = 0;

  double factor() const;  // paid over pairs; 1 where there are none
};
PaidWork paid_work(const Tile& tile, int64_t granule, int64_t tiles = 1);

// A tile as it was lowered to a chip, for contracts and receipts.
struct Lowering {
  std::string chip;     // "v6e"
  int64_t granule = 0;  // a side of its matrix unit
  Tile tile;
  std::optional<std::string> reason;  // of a tile or a block that is smaller
};

// A side of the tile, or of a logical block, is below the granule.
bool is_below_granule(const Tile& tile, int64_t granule);

// Printable UTF-8 on one line that says something.
inline constexpr size_t kMaxLoweringReason = 200;  // bytes
Result<void> check_lowering_reason(std::string_view where,
                                   std::string_view reason);

// A tile or a logical block below the chip's granule must have a reason; one
// for others is refused, so that a reason in a contract or a receipt is always
// one that was due. A side of 0 of the block is the tile's. `where` begins the
// error: "mosaic".
Result<Lowering> lower_tile(std::string_view where, const Tile& tile,
                            const Tile& logical_block, const Chip& chip,
                            const std::optional<std::string>& reason);

}  // namespace tessera
