// tessera/machine.h: what a machine has that can run attention, as plain data,
// which may describe a machine that is not here; the options of lanes; and the
// TPUs that are known, with what their matrix units pay for a tile.
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
  int64_t devices = 0;   // devices that run programs; 0: it only compiles
  // The generation of its TPUs, "v6e". Empty: not known, not the same for all,
  // or no TPU.
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

  bool only_cpu() const;    // every device of a plugin is a CPU
  std::string key() const;  // names it in gate tables
};

// Looks at this machine. With `plugins` false it does not look for plugins of
// the CPU, and for others only where a device file says that there is a device.
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
// columns of tiles. dense: all scores at a time. All three compute the same.
enum class XlaMethod : uint8_t { worklist, chunked, dense };
std::string_view to_string(XlaMethod method);
Result<XlaMethod> parse_xla_method(std::string_view text);

// Which numbers a TPU kernel of ours may read where no veto takes them.
enum class Numbers : uint8_t {
  finite,  // a promise: a NaN or infinity would also reach illegal pairs
  any,     // NaN and infinity reach only what they are legal for
};
std::string_view to_string(Numbers numbers);
Result<Numbers> parse_numbers(std::string_view text,
                              std::string_view name = "numbers");

// What our TPU kernels divide a query's probabilities by, forward.
enum class RowSum : uint8_t {
  exact,    // their float32 sum
  rounded,  // the sum of what the product takes, bf16: out's weights sum to 1,
            // and the log-sum-exp may be off by bf16's rounding, 2^-8
};
std::string_view to_string(RowSum row_sum);
Result<RowSum> parse_row_sum(std::string_view text,
                             std::string_view name = "row_sum");

// The size of a cache on disk, by default.
inline constexpr int64_t kDefaultCacheBytes = int64_t{1} << 30;

struct XlaOptions {
  // A path, or a known plugin's name. Empty: the lane's default, which is
  // libtpu for mosaic, and one for the CPU for others (docs/pjrt.md).
  std::string plugin;
  int64_t device = 0;  // its number among the plugin's
  // Options that the plugin is started with, "cpu_device_count=8": the value is
  // read as a whole number, a number, true or false, else as text.
  std::vector<std::string> client_options;
  XlaMethod method = XlaMethod::worklist;
  // Compiled programs are kept here for other processes; empty: nowhere.
  std::string cache_folder;
  int64_t max_cache_bytes = kDefaultCacheBytes;
  // The most compiles of this lane; one more is an error. 0: no limit.
  int64_t max_compiles = 0;
  // Why a tile or a logical block smaller than a TPU's matrix unit may be
  // lowered to it (Lowering). A lane that was forced without a fallback, and
  // takes no tiles to a TPU, refuses a reason; other lanes without use for it
  // ignore it.
  std::optional<std::string> lowering_reason = {};
  // For lane mosaic alone: a promise that all numbers are finite saves its
  // kernels cycles (docs/mosaic.md).
  Numbers numbers = Numbers::any;
  // For the forward kernels of lane mosaic alone; `rounded` for bf16 alone.
  RowSum row_sum = RowSum::exact;
};

// How a plugin's programs were got, and how often.
struct CompileCounts {
  int64_t compiles = 0;                    // the compiler really ran
  int64_t memory_hits = 0, disk_hits = 0;  // else one of these

  void add_compiles(const CompileCounts& more) {
    compiles += more.compiles;
    memory_hits += more.memory_hits;
    disk_hits += more.disk_hits;
  }
};

// Where a lane of a plugin runs, and by which plugin.
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
  int64_t devices = 1;    // devices of a chip
  int64_t room = 0;       // bytes of a device for a program's arrays and code
  // Bytes of a core's own memory (VMEM, on v4 CMEM). The compiler may keep what
  // fits there out of HBM.
  int64_t core = 0;
  int64_t table = 0;        // a result's table of arrays is in multiples of it
  std::string_view target;  // the smallest that the compiler takes
  int64_t granule = 0;      // a side of its matrix unit
  std::string_view kind;    // what plugins call its devices: "TPU v6 lite"
};
std::span<const Chip> chips();
std::string chip_names();                       // "v4, v5e, ..."
Result<Chip> find_chip(std::string_view name);  // "v6e", or "v6e:2x2"
// The chip of a device, by its kind or as receipts name it, "TPU v6 lite 0".
// Nothing: it is no known chip.
std::optional<Chip> chip_of_device(std::string_view device);

// What a TPU's matrix unit pays for a tile, and why one that is smaller than
// the unit may be lowered to it (docs/mosaic.md).

// The pairs of a query and a key in so many tiles, and in the whole granules
// around each tile: on a unit of 256 a product with a side of 128 takes as long
// as one with 256. This is arithmetic, not a measured time.
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

// Whether a side of the tile, or of a logical block, is below the granule.
bool is_below_granule(const Tile& tile, int64_t granule);

// A reason must be printable UTF-8 on one line, and not blank.
inline constexpr size_t kMaxLoweringReason = 200;  // bytes
Result<void> check_lowering_reason(std::string_view where,
                                   std::string_view reason);

// A tile or a logical block below the chip's granule must have a reason. A
// reason for any other tile is refused, so that a contract or a receipt has a
// reason only where one was needed. A side of 0 of the block is the tile's.
// `where` begins the error: "mosaic".
Result<Lowering> lower_tile(std::string_view where, const Tile& tile,
                            const Tile& logical_block, const Chip& chip,
                            const std::optional<std::string>& reason);

}  // namespace tessera
