// tessera/machine.h: a machine's CPU and plugins as plain data, which may
// describe another machine than this one; the options of lanes; the known TPU
// chips; and the work that a TPU's matrix unit does for a tile.
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

// Instruction sets of the CPU, in ascending order of preference.
enum class Isa : uint8_t { portable, avx2, avx512, avx512bf16, amx };

std::string_view to_string(Isa isa);  // "avx512bf16"
Result<Isa> parse_isa(std::string_view text);
std::vector<Isa> machine_isas();  // what this machine can run

struct MachinePlugin {
  std::string name;      // the name that --plugin accepts
  std::string platform;  // "cpu", "tpu", "cuda"
  int64_t devices = 0;   // devices that run programs; 0: it only compiles
  // The generation of the plugin's TPUs, "v6e". Empty: unknown, different
  // between its devices, or no TPU.
  std::string generation = {};
};
struct Machine {
  std::string cpu;            // the CPU model
  int threads = 1;            // threads that this process may use
  std::vector<Isa> isas;      // in ascending order
  bool loads_plugins = true;  // this build can load plugins
  // Whether CPU plugins were looked for, which runs Python.
  bool asked_plugins = true;
  std::vector<MachinePlugin> plugins;

  bool only_cpu() const;    // every device of every plugin is a CPU
  std::string key() const;  // the machine's name in gate tables
};

// Describes this machine. With `plugins` false it does not look for CPU
// plugins, and looks for other plugins only if a device file shows a device.
Machine this_machine(bool plugins);

struct CpuOptions {
  // Threads to use; 0: every core that this process may use.
  int threads = 0;
  // The instruction set to use; an error if this machine lacks it. Absent: the
  // environment's TESSERA_ISA if set, else the best one of this machine.
  std::optional<Isa> isa;
  // Called from time to time during forward and backward, from the calling
  // thread, with the share of the work that is done (0 to 1), and with 1 at the
  // end. It must not throw. Empty: no calls.
  std::function<void(double)> progress;
};

// worklist: a loop over the plan's steps. chunked: online softmax over all
// columns of tiles. dense: all scores at once. All three compute the same.
enum class XlaMethod : uint8_t { worklist, chunked, dense };
std::string_view to_string(XlaMethod method);
Result<XlaMethod> parse_xla_method(std::string_view text);

// Which values Tessera's TPU kernels may find in the inputs of tokens that no
// veto excludes.
enum class Numbers : uint8_t {
  finite,  // the caller promises finite values: a NaN or infinity would also
           // change results through illegal pairs
  any,     // a NaN or infinity changes results through legal pairs only
};
std::string_view to_string(Numbers numbers);
Result<Numbers> parse_numbers(std::string_view text,
                              std::string_view name = "numbers");

// What Tessera's TPU forward kernels divide a query's probabilities by.
enum class RowSum : uint8_t {
  exact,    // the float32 sum of the probabilities
  rounded,  // the sum of the probabilities rounded to bf16, as the product with
            // V uses them: the weights in out sum to 1, and the log-sum-exp may
            // be off by bf16's rounding, 2^-8
};
std::string_view to_string(RowSum row_sum);
Result<RowSum> parse_row_sum(std::string_view text,
                             std::string_view name = "row_sum");

// The default size limit of a compile cache on disk.
inline constexpr int64_t kDefaultCacheBytes = int64_t{1} << 30;

struct XlaOptions {
  // A path, or a known plugin's name. Empty: the lane's default, which is
  // libtpu for lane mosaic and a CPU plugin for other lanes (docs/pjrt.md).
  std::string plugin;
  int64_t device = 0;  // index among the plugin's devices
  // Options to start the plugin with, "cpu_device_count=8". A value is read as
  // an integer, a floating-point number, true or false, else as text.
  std::vector<std::string> client_options;
  XlaMethod method = XlaMethod::worklist;
  // The folder of the cache of compiled programs, which processes share. Empty:
  // no cache on disk.
  std::string cache_folder;
  int64_t max_cache_bytes = kDefaultCacheBytes;
  // The most compiles of this lane; one more is an error. 0: no limit.
  int64_t max_compiles = 0;
  // The reason for a tile or a logical block smaller than a TPU's matrix unit
  // (see Lowering). A lane that was forced without a fallback and runs no tiles
  // on a TPU refuses a reason; any other lane that needs none ignores it.
  std::optional<std::string> lowering_reason = {};
  // Lane mosaic only. `finite`, a promise about the inputs, saves its kernels
  // cycles (docs/mosaic.md).
  Numbers numbers = Numbers::any;
  // Forward kernels of lane mosaic only. `rounded` needs bf16.
  RowSum row_sum = RowSum::exact;
};

// How often a plugin's programs were compiled or found in a cache.
struct CompileCounts {
  int64_t compiles = 0;                    // runs of the compiler
  int64_t memory_hits = 0, disk_hits = 0;  // programs found in a cache

  void add_compiles(const CompileCounts& more) {
    compiles += more.compiles;
    memory_hits += more.memory_hits;
    disk_hits += more.disk_hits;
  }
};

// The plugin and the device that a lane runs on.
struct PluginPlace {
  std::string plugin;            // the plugin's file
  std::string api;               // PJRT API version, "0.81"
  std::string platform;          // "cpu"
  std::string platform_version;  // text that the plugin gives
  std::string device;            // "cpu 0"
};

// The known TPU chips. The figures are those that the maker publishes or the
// compiler enforces.

// A chip has one device or two.
struct Chip {
  std::string_view name;  // "v6e"
  int64_t hbm = 0;        // HBM bytes of a chip, as its maker publishes
  int64_t devices = 1;    // devices of a chip
  int64_t room = 0;       // HBM bytes of a device for a program's arrays, code
  // Bytes of a core's own memory (VMEM, on v4 CMEM). The compiler may place
  // arrays that fit there instead of in HBM.
  int64_t core = 0;
  int64_t table = 0;        // byte granule of a program's table of results
  std::string_view target;  // the smallest topology that the compiler accepts
  int64_t granule = 0;      // a side of the matrix unit
  std::string_view kind;    // device kind in PJRT: "TPU v6 lite"
};
std::span<const Chip> chips();
std::string chip_names();                       // "v4, v5e, ..."
Result<Chip> find_chip(std::string_view name);  // "v6e", or "v6e:2x2"
// The chip of a device, given its kind or its name in receipts, "TPU v6 lite
// 0". Absent: no known chip.
std::optional<Chip> chip_of_device(std::string_view device);

// The work of a TPU's matrix unit for a tile, and the reason that a tile
// smaller than the unit needs (docs/mosaic.md).

// The (query, key) pairs in a number of tiles, and in those tiles with their
// sides rounded up to the granule: on a unit of 256 a product with a side of
// 128 takes as long as one with 256. This is arithmetic, not a measured time.
struct PaidWork {
  int64_t pairs = 0;
  int64_t paid = 0;

  double factor() const;  // paid / pairs; 1 if there are no pairs
};
PaidWork paid_work(const Tile& tile, int64_t granule, int64_t tiles = 1);

// A tile lowered to a chip, as contracts and receipts record it.
struct Lowering {
  std::string chip;     // "v6e"
  int64_t granule = 0;  // a side of the chip's matrix unit
  Tile tile;
  std::optional<std::string> reason;  // only of a tile or block below granule
};

// Whether a side of the tile, or of a logical block given as a tile, is below
// the granule.
bool is_below_granule(const Tile& tile, int64_t granule);

// A reason is one line of printable UTF-8 that is not blank.
inline constexpr size_t kMaxLoweringReason = 200;  // bytes
Result<void> check_lowering_reason(std::string_view where,
                                   std::string_view reason);

// A tile or a logical block below the chip's granule must have a reason. A
// reason is refused if neither is, so that contracts and receipts have one only
// if it was needed. A side of 0 of the logical block is the tile's side.
// `where` is the prefix of errors: "mosaic".
Result<Lowering> lower_tile(std::string_view where, const Tile& tile,
                            const Tile& logical_block, const Chip& chip,
                            const std::optional<std::string>& reason);

}  // namespace tessera
