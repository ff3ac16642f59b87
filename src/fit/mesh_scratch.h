// fit/mesh_scratch.h: the scratch of a mesh's program on one of its devices.
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

// While tiles come, while the device attends, and while results go home.
enum Moment : size_t { in_exchange, in_attend, at_home };
inline constexpr size_t kMoments = at_home + 1;

struct MeshProgram {
  xla::ShardFrame frame;
  xla::ShardArrays arrays;
  std::vector<MemoryPart> attends;  // scratch of attention
  int64_t counters = 0;
  bool backward = false;
  bool kernel = false;                        // our kernels attend, from HBM
  bool in_turns = false;                      // some calls run as tiles travel
  std::optional<MemoryPart> handed_on;        // kept from call to call
  std::optional<VectorMemory> vector_memory;  // of the call that takes most
  // Bytes that a call keeps from one chunk of queries to the next, by Moment.
  std::array<int64_t, kMoments> between_chunks = {};
};

// An array of tokens whose tiles travel: an argument that other devices need,
// or a result that was made for them.
struct Traveller {
  std::string name;
  const xla::Exchange* exchange = nullptr;
  Dtype dtype = Dtype::f32;
  xla::Dims dims;
  bool kernel = false;

  int64_t bytes(int64_t tokens) const;
  int64_t all() const { return bytes(exchange->tiles() * exchange->tokens); }
  int64_t own() const { return bytes(exchange->own * exchange->tokens); }
  // Bytes that each op brings: of each round, or of one ragged exchange.
  std::vector<int64_t> came() const;
  bool of_keys() const { return xla::is_of_keys(name); }
  bool comes() const { return exchange->tiles() > exchange->own; }
  // Bytes of the counters of its ops, one way.
  int64_t counters() const;
};
bool is_ragged(const MeshProgram& program);
// The arguments whose tiles travel before a device attends.
std::vector<Traveller> senders(const MeshProgram& program);
// The results whose tiles travel after that. Those of keys are summed over the
// devices in float32.
std::vector<Traveller> homecomers(const MeshProgram& program);
// Bytes of all counters. With ragged exchanges also the buffers of numbers by
// query, which lie in gaps that other arrays would fill.
int64_t counters_of(const MeshProgram& program);
// Whether the array is itself a result of the program, and so takes no scratch.
bool is_given(const Traveller& homecomer, const MeshProgram& program);

// The scratch of lane xla's program, and of a program of our kernels.
std::vector<MemoryPart> xla_mesh_scratch(const MeshProgram& program,
                                         const Chip& chip);
std::vector<MemoryPart> kernel_mesh_scratch(const MeshProgram& program,
                                            const Chip& chip);

}  // namespace tessera::fit
