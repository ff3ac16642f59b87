// fit/mesh_pass.cc: the program of all devices of a mesh, on one of them.
//
// Three moments follow each other, for what attends last waits for all tiles,
// and what goes home waits for it:
//   - exchange: each array that travels, own tiles and those that come, and for
//     each of its rounds a buffer that leaves and one that arrives (a ragged
//     exchange is one round, and so is a gather), which of keys our kernel
//     reads as they are; what an early call gives meanwhile;
//   - attend: the arrays, what is made for all tiles, and the lane's scratch;
//   - home: what was made, own tiles of each result, and the rounds' buffers.
// The compiler lays one over the other, so scratch is that of the moment which
// takes most. What comes where other arrays went leaves holes between those
// that stay: of lane xla a share of it is counted, the most that was seen.
// Buffers may lie in the core's memory; of lane xla the arrays too, where our
// kernel reads and writes HBM.
#include <algorithm>
#include <array>
#include <optional>
#include <span>

#include "base/fail.h"
#include "base/integers.h"
#include "fit/mesh_arrays.h"
#include "fit/parts.h"
#include "lanes/lane.h"
#include "lanes/mosaic/shards.h"
#include "lanes/tensors.h"
#include "lanes/xla/planned.h"
#include "lanes/xla/shard_program.h"
#include "lanes/xla/shard_shape.h"

namespace tessera {
namespace fit {
namespace {

using xla::Exchange;
using xla::ShardArray;

constexpr int64_t kCounter = int64_t{16} << 10;
// Of a kernel's program, and more for each permutation: its loops have some. A
// ragged exchange has more.
constexpr int64_t kKernelCounters = 32 * kCounter;
constexpr int64_t kRoundCounters = 4 * kCounter;
constexpr int64_t kRaggedCounters = 10 * kCounter;

// Of what comes to attend, where queries travel; of what comes home by a ragged
// exchange, which is counted as it is. A permutation's buffers are counted as
// if all were there at once, which is more than its holes.
constexpr double kAttendHoles = 0.65, kHomeHoles = 0.25;

struct MeshProgram {
  xla::ShardFrame frame;
  xla::ShardArrays arrays;
  std::vector<MemoryPart> attends;  // scratch of what attends
  int64_t counters = 0;
  bool kernel = false;                  // ours attends, out of HBM
  bool in_turns = false;                // some of it while tiles travel
  std::optional<MemoryPart> handed_on;  // from call to call
};

int64_t sum(const std::vector<MemoryPart>& parts) {
  int64_t out = 0;
  for (const MemoryPart& p : parts) out += p.bytes;
  return out;
}

// Rows of whole lanes: the widest layout of what a program makes for itself.
// Our kernels take what does not fill lanes with the tokens last, and so it is
// laid out.
int64_t scratch_bytes(Dtype dtype, xla::Dims dims, int64_t tokens,
                      bool kernel) {
  dims[2] = tokens;
  if (dims.size() == 4 && !kernel) dims[3] = round_up(dims[3], 128);
  return device_bytes(dtype, dims);
}

// Sums of what several devices give travel in float32.
Dtype made_dtype(const ShardArray& a) {
  const std::string& name = a.part.name;
  return name == "dk" || name == "dv" ? Dtype::f32
                                      : xla::dtype_of(a.part.type.element);
}

class Moments {
 public:
  Moments(const MeshProgram& program, const Chip& chip)
      : program_(program), chip_(chip) {}

  void gather(const ShardArray& a) {
    const Exchange& e = exchange_of(a);
    const Dtype dtype = xla::dtype_of(a.part.type.element);
    if (program_.in_turns && xla::is_of_keys(a.part.name))
      return gather_keys(a);
    const MemoryPart all = array(a, dtype, " of all tiles", e.tiles());
    if (e.tiles() == e.own) return;
    exchange_.push_back(all);
    attend_.push_back(all);
    add_rounds(exchange_, a, dtype, "rounds of ");
  }

  void bring_home(const ShardArray& a) {
    const Exchange& e = exchange_of(a);
    const Dtype dtype = made_dtype(a);
    if (program_.in_turns && xla::is_of_keys(a.part.name)) {
      for (const MemoryPart& part :
           {array(a, dtype, " of own tiles", e.own),
            array(a, dtype, " of tiles that came", e.max_received())}) {
        add(everywhere(), part);
      }
      add_rounds(home_, a, dtype, "rounds home of ", lies_apart(e) ? 1 : 2);
      return;
    }
    const MemoryPart all = array(a, dtype, " of all tiles", e.tiles());
    const bool same = dtype == xla::dtype_of(a.part.type.element);
    if (e.tiles() == e.own && same) return;
    if (program_.in_turns) exchange_.push_back(all);
    attend_.push_back(all);
    home_.push_back(all);
    came_to_attend_ += all.bytes;
    if (e.tiles() == e.own) return;
    MemoryPart own = array(a, dtype, " at home", e.own);
    own.core = own.bytes <= chip_.core;
    if (e.ragged()) came_home_ += own.bytes;
    home_.push_back(std::move(own));
    add_rounds(home_, a, dtype, "rounds home of ");
  }

  // What one call leaves to the next.
  void hand_on(const MemoryPart& part) { add(everywhere(), part); }

  // Of the moment that takes most.
  std::vector<MemoryPart> take() {
    attend_.insert(attend_.end(), program_.attends.begin(),
                   program_.attends.end());
    const Exchange& rows = program_.frame.rows;
    if (rows.tiles() > rows.own) {
      add_holes(attend_, kAttendHoles, came_to_attend_);
    }
    add_holes(home_, kHomeHoles, came_home_);
    std::vector<MemoryPart> out = std::move(attend_);
    for (std::vector<MemoryPart>* other : {&exchange_, &home_}) {
      if (sum(*other) > sum(out)) out = std::move(*other);
    }
    out.push_back({"counters", MemoryKind::scratch, counters_});
    return out;
  }

 private:
  using Parts = std::vector<MemoryPart>;
  std::array<Parts*, 3> everywhere() { return {&exchange_, &attend_, &home_}; }
  static void add(std::span<Parts* const> moments, const MemoryPart& part) {
    for (Parts* moment : moments) moment->push_back(part);
  }

  // What each round brings is what a kernel reads, and what it makes of that is
  // what goes home.
  static bool lies_apart(const Exchange& keys) {
    return !keys.ragged() && mosaic::came_arrays_of(keys) == keys.came_tokens();
  }

  // Own keys stay where they are, and those that come are apart.
  void gather_keys(const ShardArray& a) {
    const Exchange& e = exchange_of(a);
    const Dtype dtype = xla::dtype_of(a.part.type.element);
    const MemoryPart came =
        array(a, dtype, " of tiles that came", e.max_received());
    attend_.push_back(came);
    if (!lies_apart(e)) exchange_.push_back(came);
    add_rounds(exchange_, a, dtype, "rounds of ");
  }

  const Exchange& exchange_of(const ShardArray& a) const {
    return xla::is_of_keys(a.part.name) ? program_.frame.columns
                                        : program_.frame.rows;
  }

  MemoryPart array(const ShardArray& a, Dtype dtype, const char* what,
                   int64_t tiles) const {
    MemoryPart out{a.part.name + what, MemoryKind::scratch};
    out.bytes = scratch_bytes(dtype, a.part.type.dims,
                              tiles * exchange_of(a).tokens, program_.kernel);
    out.core = !program_.kernel && out.bytes <= chip_.core;
    return out;
  }

  void add_holes(Parts& to, double share, int64_t came) const {
    if (program_.kernel || came == 0) return;
    MemoryPart part{"holes", MemoryKind::scratch};
    part.bytes = static_cast<int64_t>(share * static_cast<double>(came));
    part.core = part.bytes <= chip_.core;
    to.push_back(std::move(part));
  }

  void add_rounds(std::vector<MemoryPart>& to, const ShardArray& a, Dtype dtype,
                  const char* what, int64_t buffers = 2) {
    const Exchange& e = exchange_of(a);
    MemoryPart part{what + a.part.name, MemoryKind::scratch};
    const auto add = [&](int64_t tiles) {
      if (tiles == 0) return;
      counters_ += e.ragged() ? kRaggedCounters : kRoundCounters;
      part.bytes += buffers * scratch_bytes(dtype, a.part.type.dims,
                                            tiles * e.tokens, program_.kernel);
    };
    if (e.is_one_op()) {
      add(e.max_received());
    } else {
      for (const Round& r : e.rounds) add(r.capacity);
    }
    if (part.bytes == 0) return;
    part.core = part.bytes <= chip_.core;
    to.push_back(std::move(part));
  }

  const MeshProgram& program_;
  const Chip& chip_;
  std::vector<MemoryPart> exchange_, attend_, home_;
  int64_t came_to_attend_ = 0, came_home_ = 0;
  int64_t counters_ = program_.counters;
};

Result<std::vector<MemoryPart>> parts_of(
    const std::vector<ShardArray>& arrays) {
  std::vector<MemoryPart> out;
  for (const ShardArray& a : arrays) {
    const xla::Type& type = a.part.type;
    auto part = part_of(a.part.name, kind_of(a.part.name),
                        xla::dtype_of(type.element), type.dims);
    if (!part) return part.error();
    out.push_back(std::move(*part));
  }
  return out;
}

bool travels(const ShardArray& a) {
  return !a.is_own && !a.part.name.ends_with("sink_logits");
}

Result<mosaic::ShardKernel> kernel_of(const MeshFitCall& asked,
                                      const Shards& shards, bool backward) {
  const AttentionCall call = lanes::one_direction(asked.call, backward);
  const Batch& batch = *asked.batch;
  auto fitted = mosaic::fit_shards(batch, shards, call, asked.chip,
                                   asked.lowering_reason, asked.numbers);
  if (!fitted) return fitted.error();
  return std::move(fitted->kernel);
}

// What a row that several calls have leaves from one to the next, in float32.
MemoryPart so_far(const mosaic::ShardKernel& kernel) {
  MemoryPart out = {"rows between calls", MemoryKind::scratch};
  for (const mosaic::Argument& a : mosaic::arrays_of(kernel.planned).results) {
    if (!a.name.ends_with("so_far")) continue;
    out.bytes = device_bytes(Dtype::f32, a.type.shape);
  }
  return out;
}

Result<MeshProgram> program_of(const MeshFitCall& asked, const Shards& shards,
                               const Chip& chip, bool backward) {
  MeshProgram out;
  if (asked.lane == LaneId::mosaic) {
    auto kernel = kernel_of(asked, shards, backward);
    if (!kernel) return kernel.error();
    out.arrays = mosaic::arrays_of(*kernel);
    out.in_turns = kernel->calls.size() > 1;
    if (kernel->planned.shape.in_parts) out.handed_on = so_far(*kernel);
    out.frame = std::move(kernel->frame);
    out.kernel = true;
    out.counters = kKernelCounters;
    return out;
  }
  auto shape =
      xla::shard_shape(*asked.batch, shards,
                       lanes::one_direction(asked.call, backward), backward);
  if (!shape) return shape.error();
  auto lowering = xla::lower_on(shape->local, chip, asked.lowering_reason);
  if (!lowering) return lowering.error();
  out.arrays = {xla::shard_arguments(*shape), xla::shard_results(*shape)};
  auto attends = xla_scratch(shape->local, chip);
  if (!attends) return attends.error();
  out.attends = std::move(*attends);
  out.counters = out.attends.back().bytes;
  out.attends.pop_back();
  out.frame = std::move(*shape);
  return out;
}

Result<PassMemory> mesh_pass(const MeshFitCall& asked, const Shards& shards,
                             const Chip& chip, bool backward) {
  auto program = program_of(asked, shards, chip, backward);
  if (!program) return program.error();
  auto arguments = parts_of(program->arrays.arguments);
  if (!arguments) return arguments.error();
  auto outputs = parts_of(program->arrays.results);
  if (!outputs) return outputs.error();
  PassMemory out{backward, std::move(*arguments), std::move(*outputs), {}};
  out.outputs.push_back(table_of(chip, out.outputs.size()));
  Moments moments(*program, chip);
  for (const ShardArray& a : program->arrays.arguments) {
    if (travels(a)) moments.gather(a);
  }
  for (const ShardArray& a : program->arrays.results) {
    if (travels(a)) moments.bring_home(a);
  }
  if (program->handed_on) moments.hand_on(*program->handed_on);
  out.scratch = moments.take();
  return out;
}

Result<Shards> shards_of(const MeshFitCall& asked) {
  if (auto e = check_lane(asked.lane, asked.call); !e) return e.error();
  auto ok = lanes::check_call("fit", lanes::PlanSizes::of(asked.batch->plan()),
                              asked.call);
  if (!ok) return ok.error();
  return make_shards(*asked.batch, asked.mesh,
                     lanes::options_for(asked.options, asked.call));
}

}  // namespace

Result<MeshArrays> mesh_arrays(const MeshFitCall& asked, const Shards& shards,
                               bool backward) {
  if (asked.lane == LaneId::xla) {
    auto shape =
        xla::shard_shape(*asked.batch, shards,
                         lanes::one_direction(asked.call, backward), backward);
    if (!shape) return shape.error();
    return MeshArrays{xla::program_arrays(*shape),
                      xla::shard_fingerprint(*shape)};
  }
  auto kernel = kernel_of(asked, shards, backward);
  if (!kernel) return kernel.error();
  return MeshArrays{
      xla::program_arrays(kernel->frame, mosaic::arrays_of(*kernel)),
      kernel->specs};
}

}  // namespace fit

Result<Budget> make_budget(const MeshFitCall& asked) {
  auto chip = find_chip(asked.chip);
  if (!chip) return chip.error();
  auto shards = fit::shards_of(asked);
  if (!shards) return shards.error();
  auto forward = fit::mesh_pass(asked, *shards, *chip, false);
  if (!forward) return forward.error();
  Budget out{*chip, std::move(*forward), {}};
  if (!asked.call.backward) return out;
  auto backward = fit::mesh_pass(asked, *shards, *chip, true);
  if (!backward) return backward.error();
  out.backward = std::move(*backward);
  return out;
}

Result<std::string> program_text(const MeshFitCall& asked, bool backward) {
  auto shards = fit::shards_of(asked);
  if (!shards) return shards.error();
  if (asked.lane == LaneId::xla) {
    return program_text(*asked.batch, *shards,
                        lanes::one_direction(asked.call, backward), backward);
  }
  auto kernel = fit::kernel_of(asked, *shards, backward);
  if (!kernel) return kernel.error();
  return mosaic::program_text(*kernel);
}

}  // namespace tessera
