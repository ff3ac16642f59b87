// tessera/batch.h: one batch: a request, its facts and the plan that they make.
//
//   auto batch = OwnedBatch::make(request, std::move(facts));  // once a batch
//   auto batch = BorrowedBatch::make(request, facts);  // views: nothing copied
//   batch->remake(next_facts);                         // the next one
//
// One call makes the three together, and none can be exchanged, so no plan ever
// meets the facts of another batch. Lanes, exporters, checks and pictures take
// only a Batch. Below: what a batch costs and saves, its file, and its
// contract: everything static that a plan's consumer depends on.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/attention.h"
#include "tessera/facts.h"
#include "tessera/plan.h"
#include "tessera/result.h"
#include "tessera/route.h"

namespace tessera {

// A handle: copies are cheap and share one batch, which never changes. Safe to
// read from any thread.
class Batch {
 public:
  const Request& request() const;
  const Facts& facts() const;
  const Plan& plan() const;
  double plan_ms() const;  // what binding and planning took

  // How its picks were found, where OwnedBatch::route made them; else null.
  const RouteResult* routing() const;
  double route_ms() const;

  struct State;
  const State& state() const { return *state_; }

 protected:
  explicit Batch(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

// Owns its facts.
class OwnedBatch : public Batch {
 public:
  static Result<OwnedBatch> make(Request request, OwnedFacts facts);
  static Result<OwnedBatch> copy(Request request, const Facts& facts);
  // Routes first: the picks become facts. `inputs` are not kept.
  static Result<OwnedBatch> route(Request request, OwnedFacts facts,
                                  const RouteInputs& inputs,
                                  const RouteSettings& settings,
                                  const RouteOptions& options = {});

  // Makes the next batch of the same request. A copy of this handle keeps the
  // old batch. The memory of a batch without handles is used again, so a loop
  // that holds one batch while it makes the next needs the memory of two. After
  // an error this handle has no batch, and is refused everywhere, until another
  // remake succeeds.
  Result<void> remake(OwnedFacts facts);

 private:
  friend struct BatchMaker;
  using Batch::Batch;
  std::shared_ptr<State> spare_;
};

// Its facts are views of the caller's arrays, which must outlive it. It keeps a
// digest of them: using the batch after an array changed is an error.
class BorrowedBatch : public Batch {
 public:
  static Result<BorrowedBatch> make(Request request, const Facts& facts);
  // As OwnedBatch::remake.
  Result<void> remake(const Facts& facts);

 private:
  using Batch::Batch;
  std::shared_ptr<State> spare_;
};

struct Statistics {
  int64_t tiles_total = 0;
  int64_t tiles_active = 0;
  int64_t tiles_partial = 0;
  int64_t tiles_full = 0;
  int64_t pairs_total = 0;   // q_len * kv_len over all lists
  int64_t pairs_needed = 0;  // legal pairs
  int64_t pairs_paid = 0;    // pairs of real tokens in active tiles
  // Active blocks and their real pairs with the logical block in place of the
  // tile; equal to tiles_active and pairs_paid where the request names none.
  int64_t logical_active = 0;
  int64_t logical_paid = 0;
  double density = 0;      // active tiles / all tiles
  int64_t grid_width = 0;  // widest forward row
  int64_t grid_width_transposed = 0;
  int64_t empty_rows = 0;     // forward rows without a tile, over all lists
  int64_t empty_columns = 0;  // the same of the transposed rows
  std::map<int64_t, int64_t> row_histogram;  // tiles in a forward row -> rows

  bool operator==(const Statistics&) const = default;
};

// Where the logical block differs from the tile, this plans again with that
// block, row by row.
Result<Statistics> make_statistics(const Batch& batch);

// The version this build writes, and the only one it reads.
inline constexpr uint32_t kPlanFileVersion = 0;

// What a file may grow to in memory. It holds ids as runs and picks as bits, so
// a few bytes can stand for a billion tokens. Raise a limit if you want that.
struct DecodeLimits {
  int64_t max_bytes = int64_t{1} << 32;      // of the file
  int64_t max_ids = int64_t{1} << 26;        // doc_ids and q_doc_ids together
  int64_t max_tile_rows = int64_t{1} << 24;  // rows and columns of all lists
  int64_t max_picks = int64_t{1} << 28;      // slots of all queries
};

Result<std::string> encode_plan(const Batch& batch);
// Does not trust the bytes: it checks sizes, checksum and structure, and then
// that the request and facts in the file plan to the same lists. Needs memory
// only for the facts and for the tiles that are really in the file.
Result<OwnedBatch> decode_plan(std::string_view bytes,
                               const DecodeLimits& limits = {});

Result<void> save_plan(const std::string& path, const Batch& batch);
Result<OwnedBatch> load_plan(const std::string& path,
                             const DecodeLimits& limits = {});

struct PlanContract {
  std::string key;   // 32 hex digits; the same on every machine
  std::string text;  // canonical JSON that the key digests
  // Runtime scalars that left the key: exact window bounds, canonical order.
  std::vector<int64_t> window_bounds;
  int64_t steps = 0;  // the most of a packed worklist of either direction
  // Blocks that the queries of a tile row may pick together; 0 where no mask
  // names picks.
  int64_t union_blocks = 0;
  std::vector<std::string> unused_facts;  // given, but no mask names them
  std::vector<std::string> folded;  // a line for each thing that was folded
};

// The least 2^k or 1.5 * 2^k that is not below n; 0 for 0.
int64_t bucket(int64_t n);

Result<PlanContract> make_contract(const Batch& batch);

// What is right and probably not meant, a line each: of the plan, and of facts
// in vain.
std::vector<std::string> make_warnings(const Batch& batch);

// The contract of every batch under the request's ceilings; an open ceiling is
// the worst case of the lengths. `present` only says which facts there are and,
// for picks, their heads and meaning; what the arrays hold is not read.
Result<PlanContract> make_ceiling_contract(const Request& request,
                                           const Facts& present);

// What a compiled kernel depends on beside the terms of the plan's contract:
// the key of compile caches.
struct KernelChoice {
  std::string lane;       // "mosaic"
  std::string target;     // "v6e:1x1"
  std::string direction;  // "forward"
  std::string dtype;      // "bf16"
  std::string layout = "bhsd";
  std::string sharding = "none";
  AttentionShape shape;
  // Its arrays are as wide as the rectangle, so the grid width is a term of the
  // contract. For kernels that walk a list it is not.
  bool reads_rectangle = false;
  // Block sizes and the like by name, and the version of the kernel itself.
  std::map<std::string, int64_t> parameters;
  // Why a tile or a logical block smaller than the target's matrix unit is used
  // (tessera/machine.h).
  std::optional<std::string> lowering_reason = {};
};
struct KernelContract {
  std::string key;
  std::string
      text;  // canonical JSON that the key digests, the plan's terms too
};
KernelContract make_kernel_contract(const PlanContract& plan,
                                    const KernelChoice& choice);

// A digest of shapes and both lists: plans with equal digests are equal.
std::string plan_digest(const Plan& plan);

}  // namespace tessera
