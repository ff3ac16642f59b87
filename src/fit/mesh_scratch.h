// fit/mesh_scratch.h: what the program of all devices of a mesh makes for
// itself on one of them.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lanes/xla/shard_frame.h"
#include "tessera/fit.h"
#include "tessera/machine.h"

namespace tessera::fit {

inline constexpr int64_t kCounter = int64_t{16} << 10;

// As tiles come, when they are there, and as gradients go home.
enum Moment : size_t { in_exchange, in_attend, at_home };
inline constexpr size_t kMoments = at_home + 1;

struct MeshProgram {
  xla::ShardFrame frame;
  xla::ShardArrays arrays;
  std::vector<MemoryPart> attends;  // scratch of what attends
  int64_t counters = 0;
  bool backward = false;
  bool kernel = false;                        // ours attends, out of HBM
  bool in_turns = false;                      // some of it while tiles travel
  std::optional<MemoryPart> handed_on;        // from call to call
  std::optional<VectorMemory> vector_memory;  // of the call that takes most
  // Within a call, from one chunk of queries to the next, by Moment.
  std::array<int64_t, kMoments> between_chunks = {};
};

// An array of tokens that travels, or of what was made for others.
struct Traveller {
  std::string name;
  const xla::Exchange* exchange = nullptr;
  Dtype dtype = Dtype::f32;
  xla::Dims dims;
  bool kernel = false;

  int64_t bytes(int64_t tokens) const;
  int64_t all() const { return bytes(exchange->tiles() * exchange->tokens); }
  int64_t own() const { return bytes(exchange->own * exchange->tokens); }
  // What each op brings: a round, or a ragged exchange of all.
  std::vector<int64_t> came() const;
  bool of_keys() const { return xla::is_of_keys(name); }
  bool comes() const { return exchange->tiles() > exchange->own; }
  // What counts in its ops, one way.
  int64_t counters() const;
};
bool is_ragged(const MeshProgram& program);
// Before a device attends.
std::vector<Traveller> senders(const MeshProgram& program);
// After that. What several devices give of keys is summed in float32.
std::vector<Traveller> homecomers(const MeshProgram& program);
// All that counts, and between ragged exchanges the numbers by query, which lie
// in gaps that others would have filled.
int64_t counters_of(const MeshProgram& program);
// That a result of it is what the program gives: nothing is made beside it.
bool is_given(const Traveller& homecomer, const MeshProgram& program);

// Of lane xla, and of our kernels.
std::vector<MemoryPart> xla_mesh_scratch(const MeshProgram& program,
                                         const Chip& chip);
std::vector<MemoryPart> kernel_mesh_scratch(const MeshProgram& program,
                                            const Chip& chip);

}  // namespace tessera::fit
