// tessera/batch.h: one batch: a request, its facts and the plan made from them.
//
//   auto batch = OwnedBatch::make(request, std::move(facts));  // once a batch
//   auto batch = BorrowedBatch::make(request, facts);  // views: nothing copied
//   batch->remake(next_facts);                         // the next batch
//
// One call makes all three, and none of them can be replaced alone, so a plan
// is never used with the facts of another batch. Lanes, exporters, checks and
// pictures take only a Batch. This header also has a batch's statistics, its
// plan file, and its contract: everything static that a plan's consumer needs.
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

// A handle. Copies are cheap and share one batch, which is immutable; any
// thread may read it.
class Batch {
 public:
  const Request& request() const;
  const Facts& facts() const;
  const Plan& plan() const;
  double plan_ms() const;  // time of binding and planning

  // The router's result if OwnedBatch::route made the picks, else null.
  const RouteResult* routing() const;
  double route_ms() const;  // time of routing; 0 without a router

  struct State;
  const State& state() const { return *state_; }

 protected:
  explicit Batch(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

// A batch that owns its facts.
class OwnedBatch : public Batch {
 public:
  static Result<OwnedBatch> make(Request request, OwnedFacts facts);
  static Result<OwnedBatch> copy(Request request, const Facts& facts);
  // Runs the router first and adds its picks to the facts. The batch does not
  // keep `inputs`.
  static Result<OwnedBatch> route(Request request, OwnedFacts facts,
                                  const RouteInputs& inputs,
                                  const RouteSettings& settings,
                                  const RouteOptions& options = {});

  // Replaces the batch of this handle with the next batch of the same request.
  // A copy of the handle keeps the old batch. Memory of a batch that has no
  // handle left is reused, so a loop that keeps one batch while it makes the
  // next needs memory for two. After an error this handle has no batch, and
  // every function refuses it until another remake succeeds.
  Result<void> remake(OwnedFacts facts);

 private:
  friend struct BatchMaker;
  using Batch::Batch;
  std::shared_ptr<State> spare_;
};

// A batch whose facts are views of the caller's arrays, which must outlive it.
// It keeps a digest of the arrays: use of the batch after an array changed is
// an error.
class BorrowedBatch : public Batch {
 public:
  static Result<BorrowedBatch> make(Request request, const Facts& facts);
  // The same as OwnedBatch::remake.
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
  // tiles_active and pairs_paid with the logical block as the tile; the same
  // values if the request has no logical block.
  int64_t logical_active = 0;
  int64_t logical_paid = 0;
  double density = 0;      // active tiles / all tiles
  int64_t grid_width = 0;  // widest forward row
  int64_t grid_width_transposed = 0;
  int64_t empty_rows = 0;     // forward rows without a tile, over all lists
  int64_t empty_columns = 0;  // transposed rows without a tile
  std::map<int64_t, int64_t> row_histogram;  // tiles in a forward row -> rows

  bool operator==(const Statistics&) const = default;
};

// If the logical block differs from the tile, this plans again with that
// block, row by row.
Result<Statistics> make_statistics(const Batch& batch);

// The plan file version that this build writes; it reads no other.
inline constexpr uint32_t kPlanFileVersion = 0;

// Limits on the memory that a decoded plan file may take. The file stores ids
// as runs and picks as bits, so a few bytes can decode to a billion tokens. A
// caller that needs more raises the limit.
struct DecodeLimits {
  int64_t max_bytes = int64_t{1} << 32;      // of the file
  int64_t max_ids = int64_t{1} << 26;        // doc_ids and q_doc_ids together
  int64_t max_tile_rows = int64_t{1} << 24;  // rows and columns of all lists
  int64_t max_picks = int64_t{1} << 28;      // slots of all queries
};

Result<std::string> encode_plan(const Batch& batch);
// Does not trust the bytes: checks sizes, checksum and structure, then plans
// the request and facts of the file and compares the lists. Memory is needed
// only for the facts and for the tiles that the file holds.
Result<OwnedBatch> decode_plan(std::string_view bytes,
                               const DecodeLimits& limits = {});

Result<void> save_plan(const std::string& path, const Batch& batch);
Result<OwnedBatch> load_plan(const std::string& path,
                             const DecodeLimits& limits = {});

struct PlanContract {
  std::string key;   // 32 hex digits; the same on every machine
  std::string text;  // canonical JSON that the key digests
  // Exact window bounds, in canonical order: runtime scalars, not in the key.
  std::vector<int64_t> window_bounds;
  int64_t steps = 0;  // capacity of a packed worklist, in either direction
  // Capacity of a tile row's union of picked blocks; 0: no mask names picks.
  int64_t union_blocks = 0;
  std::vector<std::string> unused_facts;  // present, but no mask names them
  // One line for each exact value that a bucket, class or ceiling replaced.
  std::vector<std::string> folded;
};

// The least 2^k or 1.5 * 2^k that is at least n; 0 for n = 0.
int64_t bucket(int64_t n);

Result<PlanContract> make_contract(const Batch& batch);

// One line for each thing that is valid but probably a mistake: the warnings of
// the plan, and facts that no mask names.
std::vector<std::string> make_warnings(const Batch& batch);

// The contract of every batch under the request's ceilings. A ceiling of 0
// stands for the worst case that the lengths allow. Of `present` only the
// presence of each fact is read and, for picks, their heads and meaning.
Result<PlanContract> make_ceiling_contract(const Request& request,
                                           const Facts& present);

// What a compiled kernel depends on besides the plan's contract. Both together
// make the key of compile caches.
struct KernelChoice {
  std::string lane;       // "mosaic"
  std::string target;     // "v6e:1x1"
  std::string direction;  // "forward"
  std::string dtype;      // "bf16"
  std::string layout = "bhsd";
  std::string sharding = "none";
  AttentionShape shape;
  // The kernel's arrays have the width of the rectangle, so the grid width is a
  // term of the contract. It is no term for kernels that walk a list.
  bool reads_rectangle = false;
  // Block sizes and other parameters by name, and the kernel's own version.
  std::map<std::string, int64_t> parameters;
  // Why a tile or a logical block smaller than the target's matrix unit is used
  // (tessera/machine.h).
  std::optional<std::string> lowering_reason = {};
};
struct KernelContract {
  std::string key;
  // Canonical JSON that the key digests; it includes the plan's terms.
  std::string text;
};
KernelContract make_kernel_contract(const PlanContract& plan,
                                    const KernelChoice& choice);

// A digest of shapes and both lists: plans with equal digests are equal.
std::string plan_digest(const Plan& plan);

}  // namespace tessera
