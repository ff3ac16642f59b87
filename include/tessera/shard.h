// tessera/shard.h: a batch spread over a mesh of devices: what each shard
// computes, what it receives from other shards, and how even the work is.
//
//   auto mesh = parse_mesh("data=2,seq=4");
//   auto shards = make_shards(batch, *mesh, options);
//   shards->shards[i].forward;     // its worklist, in local tile numbers
//   shards->kv.rounds;             // rounds of K/V tiles, of static sizes
//   shards->report.forward.needed  // bytes
//
// All shards have the same shapes, so one program serves all; the numbers of
// real steps and tiles are inputs at run time. See docs/shard.md.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/attention.h"
#include "tessera/batch.h"
#include "tessera/layouts.h"
#include "tessera/plan.h"
#include "tessera/result.h"

namespace tessera {

struct MeshAxis {
  std::string name;
  int64_t size = 1;
  std::string role = {};  // empty: the name is the role

  const std::string& does() const { return role.empty() ? name : role; }
  bool operator==(const MeshAxis&) const = default;
};

// A grid of devices; device numbers run fastest along the last axis. Batch rows
// are spread along the axis with the role "data", heads along "head" and query
// rows along "seq"; along "copy" all devices hold the same. There are no other
// roles. Programs and specs use the names of axes.
inline constexpr std::string_view kMeshAxes[] = {"data", "head", "seq", "copy"};
struct Mesh {
  std::vector<MeshAxis> axes;

  int64_t devices() const;
  // Null if there is no such axis.
  const MeshAxis* named(std::string_view name) const;
  bool has(std::string_view role) const;
  int64_t size(std::string_view role) const;         // 1 without such an axis
  std::string name_of(std::string_view role) const;  // "" without such an axis
  bool operator==(const Mesh&) const = default;
};
inline constexpr int64_t kMaxMeshDevices = 4096;
inline constexpr size_t kMaxAxisName = 64;  // bytes

// "data=2,head=2,seq=4", or with other names of axes "dp:data=2,cp:seq=4".
Result<Mesh> parse_mesh(std::string_view text);
std::string to_string(const Mesh& mesh);

// How one array of a program is distributed over a mesh: for each dimension the
// axis that splits it, or "" if it is not split.
struct ArraySpec {
  std::string name;
  Dtype dtype = Dtype::f32;
  std::vector<int64_t> shape;
  std::vector<std::string> axes;

  bool operator==(const ArraySpec&) const = default;
};

// Checks that each dimension has an entry, and that each axis is in the mesh,
// splits only one dimension of an array and divides its size.
Result<void> check_specs(const Mesh& mesh, const std::vector<ArraySpec>& specs);
// A digest of the mesh and, in order, the name, dtype, shape and axes of each
// spec: 32 hex digits.
std::string spec_fingerprint(const Mesh& mesh,
                             const std::vector<ArraySpec>& specs);

// How query rows are assigned to the n shards along "seq". contiguous: each
// shard has one contiguous part of the tokens. headtail: shard i has chunks i
// and 2n - 1 - i of 2n. rows: chosen so that exact costs are even and little is
// sent. tasks: contiguous, but other shards compute the attention of some rows:
// their q is sent there and out is sent back.
enum class Balance : uint8_t { contiguous, headtail, rows, tasks };
std::string_view to_string(Balance balance);
Result<Balance> parse_balance(std::string_view text);

// How tiles are sent. rounds: one permutation of static size for each round;
// every compiler supports it. ragged: one exchange whose sizes are known at run
// time, so it sends only what is needed; TPUs only, since XLA's CPU compiler
// lacks the op. gather: every shard receives all K and V, and q is sent in
// rounds. automatic: on TPUs ragged, which never sends more than the others;
// elsewhere rounds, or gather if rounds would send as much.
enum class TileExchange : uint8_t { rounds, ragged, gather, automatic };
std::string_view to_string(TileExchange exchange);
Result<TileExchange> parse_tile_exchange(std::string_view text);

// The most that a shard may hold, so that one contract serves a whole run. More
// is an error. 0 or empty: the bucket of what this batch needs.
struct ShardCeilings {
  int64_t rows = 0;   // query tiles that a shard owns
  int64_t steps = 0;  // steps of either worklist
  // Capacity in tiles of each round, in the order of shifts 1, 2, ...
  std::vector<int64_t> kv_rounds, q_rounds;
};
// "rows=16,steps=128,kv=6:12:8,q=0:0:2"; each part is optional.
Result<ShardCeilings> parse_shard_ceilings(std::string_view text);
std::string to_string(const ShardCeilings& ceilings);

// The work that a tile counts by its class, since a masked step may cost more
// than a full one. A row without a tile counts as a partial tile.
struct TileWork {
  int64_t partial = 1, full = 1;

  int64_t of(TileClass c) const {
    return c == TileClass::full ? full : partial;
  }
  bool operator==(const TileWork&) const = default;
};
inline constexpr int64_t kMaxTileWork = int64_t{1} << 20;  // avoids overflow
// "partial=3,full=2"; a part that is left out has its default.
Result<TileWork> parse_tile_work(std::string_view text);
std::string to_string(const TileWork& work);

// The allowed ratio of the largest shard to the mean. Balances `rows` and
// `tasks` aim at `work`; `rows` gives no shard more than `tokens`. Larger
// ratios may reduce what is sent.
struct Evenness {
  double work = 1.05, tokens = 1.02;

  bool operator==(const Evenness&) const = default;
};
inline constexpr double kMaxEvenness = 1000;
constexpr bool seeks_evenness(Balance b) {
  return b == Balance::rows || b == Balance::tasks;
}
// "work=1.1,tokens=1.02"; a part that is left out has its default.
Result<Evenness> parse_evenness(std::string_view text);
std::string to_string(const Evenness& evenness);

struct ShardOptions {
  Balance balance = Balance::rows;
  TileExchange exchange = TileExchange::rounds;
  bool for_tpu = false;  // the program is for TPUs; decides `automatic`
  AttentionShape shape;  // heads and dims, for the bytes of a tile
  Dtype dtype = Dtype::bf16;
  // The backward pass takes a gradient of the log-sum-exp, which travels with
  // a moved task. Counts in the report alone; nothing is placed by it.
  bool dlse = false;
  // Pads batch rows and groups of heads that an axis does not divide. False:
  // such an axis is an error, because arrays are split evenly.
  bool uneven = false;
  TileWork work;
  Evenness evenness;
  ShardCeilings ceilings;
};
// The options as text, for command lines and other languages.
struct ShardWords {
  std::string_view balance = "rows", exchange = "rounds";
  std::string_view ceilings, work, evenness;
  bool uneven = false;
};
Result<ShardOptions> parse_shard_options(const ShardWords& words);

// A tile of a batch row; -1: padding.
struct TileAt {
  int32_t batch_row = -1;
  int32_t tile = -1;

  bool operator==(const TileAt&) const = default;
};

// One shard. Its worklists use local tile numbers: row i is `rows[i]`, column j
// is `columns[j]`. The shard's own tiles come first, ascending, then the tiles
// that each round brings; a round has all its places, used or not. After a
// gather there are places for the tiles of every shard, in order of shards;
// tiles that are not needed are padding.
struct Shard {
  int64_t data = 0, head = 0, seq = 0;  // the shard's index on these axes
  int64_t first_batch_row = 0, batch_rows = 0;
  int64_t first_head = 0, heads = 0;        // query heads
  int64_t first_kv_head = 0, kv_heads = 0;  // whole groups
  // The shard's plan heads; lists after these are padding.
  int64_t first_list = 0, lists = 0;
  std::vector<TileAt> rows, columns;
  int64_t own_rows = 0, own_columns = 0;
  // For each row whether this shard computes it; another shard may compute an
  // own row.
  std::vector<uint8_t> computes;
  Worklist forward;  // one list for each plan head of the shard's query heads
  Worklist transposed;
  int64_t steps = 0, steps_transposed = 0;  // steps to run, without padding
  int64_t work = 0;                         // forward steps weighted by class
  // The work of tiles whose queries and keys the shard owns, which can start
  // before any tile arrives.
  int64_t early_work = 0;
};

// One round of tiles sent along "seq": every shard s sends up to `capacity`
// tiles to shard (s + shift) % seq. In a ragged exchange one op does all rounds
// and sends only needed tiles. In a gather one op does all rounds and sends
// their whole capacity.
struct Round {
  int64_t shift = 0;
  int64_t capacity = 0;

  bool operator==(const Round&) const = default;
};
struct Traffic {
  std::vector<Round> rounds;
  // [shard][round]: the sender's local numbers of its own tiles that it sends,
  // in the order of their places at the receiver.
  std::vector<std::vector<std::vector<int32_t>>> send;
};

// The shapes of all shards, in tiles and steps.
struct ShardShapes {
  int64_t own_rows = 0, rows = 0;
  int64_t own_columns = 0, columns = 0;
  int64_t steps = 0;  // capacity of either worklist
  int64_t batch_rows = 0, heads = 0, kv_heads = 0;

  bool operator==(const ShardShapes&) const = default;
};

struct Moved {
  int64_t needed = 0;    // bytes that must be sent
  int64_t sent = 0;      // bytes that are sent, including padding
  int64_t capacity = 0;  // bytes that the program has room for
  int64_t busiest = 0;   // the most needed bytes that leave or reach one shard
  // Bytes that an all-gather of K and V would send; backward with a
  // reduce-scatter of dK and dV.
  int64_t all_gather = 0;

  bool operator==(const Moved&) const = default;
};

struct ShardReport {
  double work_max_over_mean = 1;
  double tokens_max_over_mean = 1;
  double early_work = 1;  // Shard::early_work as a share of all forward work
  Moved forward, backward;
  // A lower bound of the bytes of K and V that a forward pass must send, for
  // any assignment of rows and computation to shards that is as even in work
  // and tokens as requested, or as this one if it is less even. The best
  // assignment may need more.
  int64_t least_needed = 0;
  // [from * seq + to]: K/V tiles that shard `to` of a "seq" group needs from
  // shard `from`, summed over the groups.
  std::vector<int64_t> kv_tiles;
};

struct Shards {
  Mesh mesh;
  Tile tile;
  Balance balance = Balance::rows;
  TileExchange exchange = TileExchange::rounds;  // never automatic
  ShardShapes shapes;
  // One for each (data, head, seq), fastest along seq. Devices that differ only
  // along "copy" have the same shard.
  std::vector<Shard> shards;
  Traffic kv;                    // K and V; dK and dV are sent the reverse way
  Traffic q;                     // q; out and its lse are sent the reverse way
  std::vector<ArraySpec> specs;  // of a call's arrays, with global shapes
  std::string fingerprint;       // spec_fingerprint() of the specs
  // The contract: mesh, shapes, rounds, and the terms of the plan's contract
  // except its counts of tiles. It depends on no data of the batch.
  std::string contract_key, contract_text;
  ShardReport report;
};

Result<Shards> make_shards(const Batch& batch, const Mesh& mesh,
                           const ShardOptions& options);
// The capacities of these shards, as ceilings. With them all batches that fit
// have the same contract.
ShardCeilings ceilings_of(const Shards& shards);

// A worklist of shard `index` as packed steps, only those that it runs: rows of
// padding, and own rows that another shard computes, have no step. Several
// lists follow each other; Steps::range has their starts.
Result<Steps> pack_shard(const Batch& batch, const Shards& shards,
                         int64_t index, bool transposed);

// The program of all shards: StableHLO in which every argument and result has
// its sharding, and the rounds of `kv` and `q` send the tiles. It needs a
// compiler with Shardy; a ragged exchange needs one for TPUs. Arguments are the
// integers of each device, then q, k and v (backward also out, dout and lse)
// with the tokens of shard 0 first.
Result<std::string> program_text(const Batch& batch, const Shards& shards,
                                 const AttentionCall& call, bool backward);
// The arguments and results of program_text() in order, with global shapes and
// axes.
struct ShardProgramArrays {
  std::vector<ArraySpec> arguments, results;
};
Result<ShardProgramArrays> shard_program_arrays(const Batch& batch,
                                                const Shards& shards,
                                                const AttentionCall& call,
                                                bool backward);
// The integer arguments of program_text() for all devices; the same forward and
// backward.
struct ShardIntegers {
  std::string name;
  std::vector<int32_t> values;  // with the argument's global shape
};
Result<std::vector<ShardIntegers>> shard_integers(const Batch& batch,
                                                  const Shards& shards,
                                                  const AttentionCall& call);

// The source of each token place in a program's arrays, ordered along data and
// then along seq: batch row * tokens + token, or -1 for padding.
std::vector<int64_t> token_order(const Batch& batch, const Shards& shards,
                                 bool queries);

// The audit of a program for many devices: the sharding of every array that
// enters or leaves it, and what its devices send.
//
//   auto audit = audit_program(text);  // any StableHLO text, not only
//   Tessera's audit->arguments[0].sharding;      // [{"data"}, {}]
//
// A program that leaves a sharding to the compiler's propagation is refused;
// the error names the array and its line. See docs/shard.md.

struct AuditMesh {
  std::string name;
  std::vector<MeshAxis> axes;
  int64_t devices = 1;
  std::string order;  // device numbers; empty: 0, 1, 2, ...
};

struct AuditArray {
  std::string name;            // "q", "result 0", "in 2"
  std::string dtype;           // "bf16"
  std::vector<int64_t> shape;  // global shape
  std::vector<int64_t> part;   // shape on one device
  std::string sharding;        // normalized: [{"data"}, {}]
  int64_t part_bytes = 0;
};

// An op inside the program that sets or changes the sharding of arrays.
struct AuditBoundary {
  std::string op;  // "sdy.manual_computation"
  int64_t line = 0;
  std::vector<AuditArray> arrays;
};

struct AuditCollective {
  std::string op;  // "all_gather"
  int64_t line = 0;
  std::string dtype;           // of its first operand
  std::vector<int64_t> shape;  // on one device
  // Groups of devices that exchange data; a permutation has one group.
  int64_t groups = 0, group_devices = 0;
  int64_t operand_bytes = 0;  // on one device
  // Sum over all devices if each sends its data once. Absent if the sizes are
  // known only at run time.
  std::optional<int64_t> sent_bytes;
  // The op is in a loop or in a called function. It may run several times, but
  // counts once.
  bool repeats = false;
};

struct Audit {
  int64_t partitions = 1;
  std::vector<AuditMesh> meshes;
  std::vector<AuditArray> arguments, results;  // of the function main
  std::vector<AuditBoundary> boundaries;
  std::vector<AuditCollective> collectives;
  // A digest of the meshes and, in order, the name, dtype, shape and sharding
  // of each argument and result: 32 hex digits.
  std::string fingerprint;
};

Result<Audit> audit_program(std::string_view text);

}  // namespace tessera
