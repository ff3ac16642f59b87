// receipt/receipt.h: what was asked, what really ran, and its proof. fields.h
// says what every member means.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "receipt/request_fields.h"
#include "tessera/attention.h"
#include "tessera/dispatch.h"
#include "tessera/receipt.h"
#include "tessera/route.h"

namespace tessera::receipt {

// What the receipt is about. Members that the table gives only to other kinds
// are ignored.
enum class Kind : uint8_t {
  plan = 1,       // that ran or was compiled
  operation = 2,  // that JAX exported
  training = 4    // steps of `tessera train`
};
std::string_view to_string(Kind kind);  // "plan"

struct Receipt {
  struct Lane {
    std::string requested;          // "auto", "cpu"
    std::string source;             // "flag", "caller", "default" or "command"
    std::string chosen;             // by the rules, or as it was requested
    std::string executed;           // "": nothing ran
    std::string family = "native";  // whose code ran
    std::string runtime_mode = "executed";      // or "compiled only"
    std::vector<std::string> fallback_allowed;  // in this order
  };
  // Why the lane was chosen, and why each other lane was not.
  struct Choice {
    std::string request_class;  // "sparse blocks"
    std::string reason;
    std::map<std::string, std::string> rejected;
    std::vector<GateRow> gate;        // rows of the gate that decided
    std::optional<std::string> rule;  // the threshold that decided
  };
  // What the choice knew of the machine.
  struct Machine {
    struct Plugin {
      std::string name, platform;
      int64_t devices = 0;
      std::string generation = {};  // of its TPUs; "": not known
    };
    std::string cpu;
    std::string system;  // "Linux 6.1 x86_64"
    int threads = 1;
    std::vector<std::string> isas;
    bool loads_plugins = false, asked_plugins = false;
    std::vector<Plugin> plugins;
  };
  struct Shape {
    AttentionShape attention;
    double scale = 0;  // as used
    std::string dtype, layout;
    bool sink_logits = false;
  };
  struct Array {
    std::string name, dtype;
    std::vector<int64_t> shape;
  };
  // Arrays that were drawn from the seed or read from the file, with digests of
  // what the lane was given.
  struct Inputs {
    uint64_t seed = 0;
    std::string file;  // "": none
    std::map<std::string, std::string> digests;
    std::vector<std::string> drawn;  // names of the arrays from the seed
    std::vector<Array> arrays = {};  // of an operation
  };
  // The PJRT plugin that compiled and ran the program.
  struct Plugin {
    std::string file, api, platform, platform_version, device;
    int64_t number = 0;  // index of the device in the plugin
  };
  // Bytes between the devices of a mesh.
  struct Moved {
    int64_t needed = 0, sent = 0, capacity = 0, busiest = 0, all_gather = 0;
  };
  // How a mesh of the plugin's devices spread the call, and what was sent.
  struct Shards {
    std::string mesh, balance, exchange;  // "data=2,seq=4", "rows", "ragged"
    std::string ceilings;                 // "steps=128"; "": none were set
    std::string work;                     // "partial=3,full=2", or ""
    std::string evenness;                 // "work=1.1,tokens=1.02", or ""
    bool uneven = false;
    std::map<std::string, std::string> specs;  // digests by direction
    std::string contract;                      // a digest
    double work_max_over_mean = 1, tokens_max_over_mean = 1;
    Moved forward;
    std::optional<Moved> backward;
  };
  // How a tile lies in a TPU's matrix unit.
  struct Lowering {
    std::string chip;  // "v6e"
    int64_t granule = 0;
    std::vector<int64_t> tile;          // queries, keys
    std::optional<std::string> reason;  // for a tile below the granule
    double factor = 1;                  // pairs a tile pays over its own
    int64_t paid_pairs = 0;             // of all tiles that ran
  };
  // The program that JAX exported and the lane ran.
  struct Artifact {
    std::string file, shapes_file;  // "": the caller had them in memory
    std::string digest;
    // For an operation alone.
    int64_t bytes = 0;
    std::string jax;
    int64_t calling_convention_version = 0;
    std::vector<std::string> platforms;
  };
  // The key of an operation's program.
  struct Key {
    std::string digest;
    bool wider = true;  // than a kernel contract
    std::string of;
    std::string terms = "{}";  // JSON
  };
  struct Phase {
    std::string name, stages;
    bool differentiable = false;
  };
  // Present if a mask names picks. Only the attention phase has a gradient.
  struct Routing {
    bool given = false;  // by a file or a saved plan: nothing was scored
    RouteSettings settings;
    int64_t heads = 0;  // heads that pick
    int64_t picks = 0, removed = 0;
    int64_t union_blocks = 0, tile_rows = 0;
    int64_t widest_union = 0, union_capacity = 0;
    // Keys as KeyReads counts them, over the plan's lists. Bytes of K and V,
    // set in a receipt only: read beyond the needed keys, and in all.
    int64_t needed_keys = 0, read_keys = 0;
    int64_t extra_bytes = 0, cache_bytes = 0;
    std::vector<Phase> phases = all_phases();

    static std::vector<Phase> all_phases();
  };
  // Present if it was asked for. Numbers are by query head; nothing for one
  // that is not finite.
  struct SinkTelemetry {
    struct Document {
      int64_t batch_row = 0;
      std::optional<int64_t> document;
      std::vector<int64_t> queries;
      std::vector<std::optional<double>> mass, entropy;
    };
    int64_t first_keys = 0;
    std::string mass_digest, entropy_digest;  // of the numbers of each query
    std::vector<Document> documents;
  };
  // A model that was trained, and the rows that it was trained on.
  struct Training {
    struct Work {
      std::string slot;
      std::optional<double> flops, flops_back;
      int64_t inputs = 0, parameters = 0, outputs = 0, kept = 0;  // bytes
      int64_t read_back = 0, written_back = 0;
    };
    std::string spec;
    std::map<std::string, std::string> slots;  // the factory of each slot
    std::string model = "{}";                  // JSON
    int64_t parameters = 0;
    std::vector<Work> work;
    std::string mesh, specs;  // "" on one device
    // Present if the mesh divides the tokens of rows.
    struct Exchange {
      std::string kind, balance;             // "rounds", "rows"
      std::string ceilings, work, evenness;  // as flags have them, or ""
      int64_t sent = 0, all_gather = 0;
      double tiles_max_over_mean = 1;
    };
    std::optional<Exchange> exchange;
    std::map<std::string, std::string> precision;
    std::string program;  // its key
    int64_t rows = 0;     // of each step
    int64_t tokens = 0;   // of each row
    std::string tile;     // "256x256"
    bool recompute = false;
    double rate = 0, max_norm = 0, weight_decay = 0;
    int64_t warmup = 0;
    std::string start;  // the checkpoint that the run continued, or ""
    int64_t first_step = 0, steps = 0;
    std::vector<double> losses;
    int64_t counted = 0;  // tokens that the losses are of
    int64_t tiles_run = 0, tiles_planned = 0;
    double attention_flops = 0;
    double seconds = 0;
  };
  struct CacheHits {
    int64_t memory = 0, disk = 0;
  };
  struct Check {
    std::string kind = "none";  // "full", "sampled"
    int64_t rows = 0;
    double max_error = 0;
    double max_bound_ratio = 0;
    bool passed = false;
    std::string worst;
  };

  int schema = kReceiptSchema;
  std::string version;
  Lane lane;
  Kind kind = Kind::plan;
  std::string operation, name;
  Choice choice;
  Machine machine;
  // Absent if a plugin decides them.
  std::optional<std::string> isa;
  std::optional<int> threads;
  std::string device;  // the CPU's own name, or a plugin's for another device
  std::optional<Plugin> plugin;
  std::optional<Shards> shards;
  std::optional<Lowering> lowering;
  std::string method;   // of lane xla; else ""
  std::string numbers;  // which ones lane mosaic's kernels may read; else ""
  std::string row_sum;  // of lane mosaic's forward kernel; else ""
  std::optional<Artifact> artifact;
  // Of a kernel that was only compiled: "tiles_per_pass" and so on.
  std::map<std::string, int64_t> parameters;
  // Of our TPU kernels: who chose the tile, and by direction the tiles a pass.
  std::map<std::string, std::string> settings;
  bool backward = false;
  RequestText request;       // a spec, so that the plan can be made again
  std::string plan_file;     // "": the request is not from a plan file
  std::string facts_digest;  // of every id, count, offset and pick
  Shape shape;
  Inputs inputs;
  std::vector<Array> outputs;  // of an operation
  Key key;
  std::string contract;  // key of the plan contract
  // Keys of kernel contracts by direction, of lanes that compile.
  std::map<std::string, std::string> kernels;
  std::string plan_digest;                   // of both lists
  int64_t tiles_run = 0, tiles_skipped = 0;  // counted by the lane
  int64_t pairs_legal = 0, pairs_run = 0;    // every head
  std::optional<Routing> routing;
  int64_t compiles = 0;  // how often the compiler ran
  CacheHits cache_hits;
  std::optional<std::string> fallback;  // why the chosen lane did not run
  double route_ms = 0, plan_ms = 0, prepare_ms = 0, compile_ms = 0;
  double transfer_ms = 0, run_ms = 0, forward_ms = 0, backward_ms = 0;
  std::vector<std::string> warnings;  // of the lane, or of the plugin
  Check check;
  std::optional<SinkTelemetry> sink_telemetry;
  Training training;
  std::string output_digest;
  // Computed by seal() from the members above.
  double total_ms = 0, useful_gflops = 0;
  std::string digest;

  bool of_plan() const { return kind == Kind::plan; }
  bool ran() const { return lane.runtime_mode == "executed"; }
  // Legal pairs only: 4 D a pair forward, 14 D with the backward pass, D the
  // mean of the two head dimensions.
  double useful_flop() const;
  double useful_gflops_due() const;  // 0 if nothing was timed
  double total_ms_due() const;
};

// Computes the totals, then the digest of all other fields.
void seal(Receipt& receipt);
// One JSON object, sealed. A number that is not finite is the text "inf",
// "-inf" or "nan", which readers refuse.
std::string receipt_json(Receipt receipt, int indent = -1);

}  // namespace tessera::receipt
