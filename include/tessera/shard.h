// tessera/shard.h: a batch spread over a mesh of devices: what each shard
// computes, what it needs from which other shard, and how even the work is.
//
//   auto mesh = parse_mesh("data=2,seq=4");
//   auto shards = make_shards(batch, *mesh, options);
//   shards->shards[i].forward;     // its worklist, in its own tile numbers
//   shards->kv.rounds;             // what is sent around, in static sizes
//   shards->report.forward.needed  // bytes
//
// Every shard has the same shapes, so that one program serves all; how many
// steps and tiles are real is known at run time. docs/shard.md.
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
  std::string role = {};  // where that is not its name

  const std::string& does() const { return role.empty() ? name : role; }
  bool operator==(const MeshAxis&) const = default;
};

// Devices in a grid, the last axis the fastest. Batch rows are spread along the
// axis of the role "data", heads along "head" and query rows along "seq"; along
// "copy" all devices hold the same. There are no other roles. Programs and
// specs have the axes' names.
inline constexpr std::string_view kMeshAxes[] = {"data", "head", "seq", "copy"};
struct Mesh {
  std::vector<MeshAxis> axes;

  int64_t devices() const;
  // Null where there is none.
  const MeshAxis* named(std::string_view name) const;
  bool has(std::string_view role) const;
  int64_t size(std::string_view role) const;         // 1 where there is none
  std::string name_of(std::string_view role) const;  // else ""
  bool operator==(const Mesh&) const = default;
};
inline constexpr int64_t kMaxMeshDevices = 4096;
inline constexpr size_t kMaxAxisName = 64;  // bytes

// "data=2,head=2,seq=4"; with names of a caller's own "dp:data=2,cp:seq=4".
Result<Mesh> parse_mesh(std::string_view text);
std::string to_string(const Mesh& mesh);

// How one array of a program lies on a mesh: for each dimension the axis that
// splits it, or "" where every device holds it whole.
struct ArraySpec {
  std::string name;
  Dtype dtype = Dtype::f32;
  std::vector<int64_t> shape;
  std::vector<std::string> axes;

  bool operator==(const ArraySpec&) const = default;
};

// Whether each dimension has its entry, and each axis is in the mesh, splits
// one dimension of an array and divides it.
Result<void> check_specs(const Mesh& mesh, const std::vector<ArraySpec>& specs);
// Of mesh, names, dtypes, shapes and specs, in their order: 32 hex digits.
std::string spec_fingerprint(const Mesh& mesh,
                             const std::vector<ArraySpec>& specs);

// contiguous: tokens stay where they lie. headtail: shard i has the chunks i
// and 2n - 1 - i of 2n. rows: rows lie where exact costs are even and little
// travels. tasks: rows stay, and the attention of some is computed elsewhere:
// q goes there and out comes back.
enum class Balance : uint8_t { contiguous, headtail, rows, tasks };
std::string_view to_string(Balance balance);
Result<Balance> parse_balance(std::string_view text);

// How tiles travel. rounds: a permutation for each round, of static size, which
// every compiler has. ragged: one exchange, whose sizes are known at run time,
// so that it sends only what it must; on TPUs alone, for XLA's CPU compiler has
// no such op. gather: every shard gets all K and V, while q travels in rounds.
// automatic: rounds, or gather where they would send as much; for TPUs ragged,
// which never sends more than either.
enum class TileExchange : uint8_t { rounds, ragged, gather, automatic };
std::string_view to_string(TileExchange exchange);
Result<TileExchange> parse_tile_exchange(std::string_view text);

// The most that a shard may hold, so that one contract serves a whole run; more
// is an error. 0 and empty: the bucket of what this batch needs.
struct ShardCeilings {
  int64_t rows = 0;   // query tiles that it owns
  int64_t steps = 0;  // of either worklist
  // Tiles of the round that shifts by 1, by 2, ...: one for each.
  std::vector<int64_t> kv_rounds, q_rounds;
};
// "rows=16,steps=128,kv=6:12:8,q=0:0:2", whichever are wanted.
Result<ShardCeilings> parse_shard_ceilings(std::string_view text);
std::string to_string(const ShardCeilings& ceilings);

// Work of a tile by its class: a masked step may cost more than a plain one. A
// row without a tile counts as a partial tile.
struct TileWork {
  int64_t partial = 1, full = 1;

  int64_t of(TileClass c) const {
    return c == TileClass::full ? full : partial;
  }
  bool operator==(const TileWork&) const = default;
};
inline constexpr int64_t kMaxTileWork = int64_t{1} << 20;  // so that sums fit
// "partial=3,full=2", either may be left out; "" leaves both.
Result<TileWork> parse_tile_work(std::string_view text);
std::string to_string(const TileWork& work);

// The most of a shard over the mean. `rows` and `tasks` aim at `work`; `rows`
// gives no shard more than `tokens`. Where shards may be less even, less may
// have to travel.
struct Evenness {
  double work = 1.05, tokens = 1.02;

  bool operator==(const Evenness&) const = default;
};
inline constexpr double kMaxEvenness = 1000;
constexpr bool seeks_evenness(Balance b) {
  return b == Balance::rows || b == Balance::tasks;
}
// "work=1.1,tokens=1.02", either may be left out; "" leaves both.
Result<Evenness> parse_evenness(std::string_view text);
std::string to_string(const Evenness& evenness);

struct ShardOptions {
  Balance balance = Balance::rows;
  TileExchange exchange = TileExchange::rounds;
  bool for_tpu = false;  // the program, which decides what automatic is
  AttentionShape shape;  // heads and dims: what a tile weighs in bytes
  Dtype dtype = Dtype::bf16;
  // Pads batch rows and groups of heads that an axis does not divide. Otherwise
  // they are an error: arrays split evenly or not at all.
  bool uneven = false;
  TileWork work;
  Evenness evenness;
  ShardCeilings ceilings;
};
// From words, as programs and other languages have them.
struct ShardWords {
  std::string_view balance = "rows", exchange = "rounds";
  std::string_view ceilings, work, evenness;
  bool uneven = false;
};
Result<ShardOptions> parse_shard_options(const ShardWords& words);

// A tile of a batch row; -1 is padding.
struct TileAt {
  int32_t batch_row = -1;
  int32_t tile = -1;

  bool operator==(const TileAt&) const = default;
};

// Tiles in local numbers: row i is `rows[i]`, column j `columns[j]`. What a
// shard owns comes first, ascending; then the tiles that rounds bring, each
// round at its place, whether it is filled or not. Of a gather there is room
// for what each shard owns, in their order, and what is not needed is padding.
struct Shard {
  int64_t data = 0, head = 0, seq = 0;  // where it stands on these axes
  int64_t first_batch_row = 0, batch_rows = 0;
  int64_t first_head = 0, heads = 0;        // query heads
  int64_t first_kv_head = 0, kv_heads = 0;  // whole groups
  // Its plan heads; lists beyond them are padding.
  int64_t first_list = 0, lists = 0;
  std::vector<TileAt> rows, columns;
  int64_t own_rows = 0, own_columns = 0;
  // For each row, whether it is computed here: own rows may be computed
  // elsewhere.
  std::vector<uint8_t> computes;
  Worklist forward;  // a list for each plan head of its query heads
  Worklist transposed;
  int64_t steps = 0, steps_transposed = 0;  // to run, padding left out
  int64_t work = 0;                         // steps weighted by class
  // The work of tiles whose queries and keys are its own: it waits for no tile.
  int64_t early_work = 0;
};

// One way that tiles travel along "seq". In round r every shard s sends up to
// `capacity` tiles to shard (s + shift) % seq. Of a ragged exchange all rounds
// are one op, and only tiles that must travel do; of a gather they are one that
// brings all that there is room for.
struct Round {
  int64_t shift = 0;
  int64_t capacity = 0;

  bool operator==(const Round&) const = default;
};
struct Traffic {
  std::vector<Round> rounds;
  // [shard][round]: local numbers of the sender's own tiles that the receiver
  // needs, in the order in which they lie there.
  std::vector<std::vector<std::vector<int32_t>>> send;
};

// The shapes that all shards share, in tiles and steps.
struct ShardShapes {
  int64_t own_rows = 0, rows = 0;
  int64_t own_columns = 0, columns = 0;
  int64_t steps = 0;  // of either worklist
  int64_t batch_rows = 0, heads = 0, kv_heads = 0;

  bool operator==(const ShardShapes&) const = default;
};

struct Moved {
  int64_t needed = 0;    // bytes that must travel
  int64_t sent = 0;      // bytes that do, padding of static sizes included
  int64_t capacity = 0;  // bytes that the program has room for
  int64_t busiest = 0;   // needed bytes that leave or reach one shard, at most
  int64_t all_gather = 0;  // of K/V; backward with a reduce-scatter of dK, dV

  bool operator==(const Moved&) const = default;
};

struct ShardReport {
  double work_max_over_mean = 1;
  double tokens_max_over_mean = 1;
  double early_work = 1;  // of all forward work, what waits for no tile
  Moved forward, backward;
  // Bytes of K and V that a forward pass must send, however rows are spread and
  // whoever computes them, where work and tokens are as even as was asked, or
  // as here where that is less. A lower bound: even the best way may need more.
  int64_t least_needed = 0;
  // K/V tiles that shard `to` of a "seq" group needs from `from`, summed over
  // the groups: [from * seq + to].
  std::vector<int64_t> kv_tiles;
};

struct Shards {
  Mesh mesh;
  Tile tile;
  Balance balance = Balance::rows;
  TileExchange exchange = TileExchange::rounds;  // never automatic
  ShardShapes shapes;
  // One for each (data, head, seq), seq the fastest. Devices that differ only
  // along "copy" hold the same.
  std::vector<Shard> shards;
  Traffic kv;                    // K and V; backward dK and dV go the other way
  Traffic q;                     // q; out and its log-sum-exp go the other way
  std::vector<ArraySpec> specs;  // of the arrays of a call, global shapes
  std::string fingerprint;       // of the specs
  // Mesh, shapes and rounds, and the terms of the plan's contract that do not
  // count its tiles. No batch is in it.
  std::string contract_key, contract_text;
  ShardReport report;
};

Result<Shards> make_shards(const Batch& batch, const Mesh& mesh,
                           const ShardOptions& options);
// What these shards have room for. With these ceilings all batches that fit
// have the same contract.
ShardCeilings ceilings_of(const Shards& shards);

// A worklist of shard `index` as packed steps, as many as it runs: padding
// rows, and own rows that another shard computes, have none. Several lists
// follow each other; `range` says where each begins.
Result<Steps> pack_shard(const Batch& batch, const Shards& shards,
                         int64_t index, bool transposed);

// The program of all shards: StableHLO in which every argument and result says
// how it lies on the mesh, and tiles travel in the rounds of `kv` and `q`. It
// needs a compiler with Shardy, and of a ragged exchange one for TPUs.
// Arguments are integers of each device, then q, k and v (backward also out,
// dout and lse) with the tokens of shard 0 first.
Result<std::string> program_text(const Batch& batch, const Shards& shards,
                                 const AttentionCall& call, bool backward);
// Its arguments and results in their order, with their whole shapes and how
// they lie.
struct ShardProgramArrays {
  std::vector<ArraySpec> arguments, results;
};
Result<ShardProgramArrays> shard_program_arrays(const Batch& batch,
                                                const Shards& shards,
                                                const AttentionCall& call,
                                                bool backward);
// The integers that it takes, of all devices; the same forward and backward.
struct ShardIntegers {
  std::string name;
  std::vector<int32_t> values;  // of the argument's whole shape
};
Result<std::vector<ShardIntegers>> shard_integers(const Batch& batch,
                                                  const Shards& shards,
                                                  const AttentionCall& call);

// Where the tokens of a program's arrays come from: for each place along data
// and, within it, along seq, batch row times tokens plus token, or -1 where
// there is none.
std::vector<int64_t> token_order(const Batch& batch, const Shards& shards,
                                 bool queries);

// What a program for many devices says about itself: how every array that goes
// in or out lies on the mesh, and what its devices send.
//
//   auto audit = audit_program(text);  // StableHLO as text, ours or another's
//   audit->arguments[0].sharding;      // [{"data"}, {}]
//
// A program that leaves a choice to the compiler is refused by the name of the
// array and its line: nothing is ever spread by propagation. docs/shard.md.

struct AuditMesh {
  std::string name;
  std::vector<MeshAxis> axes;
  int64_t devices = 1;
  std::string order;  // device numbers where they are not 0, 1, 2, ...
};

struct AuditArray {
  std::string name;            // "q", "result 0", "in 2"
  std::string dtype;           // "bf16"
  std::vector<int64_t> shape;  // of the whole
  std::vector<int64_t> part;   // of one device
  std::string sharding;        // in one spelling, whoever wrote it
  int64_t part_bytes = 0;
};

// Where arrays change hands within the program.
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
  // Devices that talk to each other; a permutation has one group.
  int64_t groups = 0, group_devices = 0;
  int64_t operand_bytes = 0;  // on one device
  // Over all devices, if each sends once what it must. Absent where sizes are
  // known only at run time.
  std::optional<int64_t> sent_bytes;
  // It is in a loop, or in a function that is called: it may run often, but
  // counts once here.
  bool repeats = false;
};

struct Audit {
  int64_t partitions = 1;
  std::vector<AuditMesh> meshes;
  std::vector<AuditArray> arguments, results;  // of the function main
  std::vector<AuditBoundary> boundaries;
  std::vector<AuditCollective> collectives;
  // Of meshes, and of names, dtypes, shapes and shardings of arguments and
  // results, in their order: 32 hex digits.
  std::string fingerprint;
};

Result<Audit> audit_program(std::string_view text);

}  // namespace tessera
