// fit/mesh_scratch.cc: the arrays that travel, with their bytes and counters.
#include "fit/mesh_scratch.h"

#include <algorithm>

#include "base/integers.h"
#include "lanes/xla/planned.h"

namespace tessera::fit {
namespace {

using xla::ShardArray;

// Counters of the loops of one permutation, and of one ragged exchange.
constexpr int64_t kRoundCounters = 4 * kCounter;
constexpr int64_t kRaggedCounters = 10 * kCounter;

bool travels(const ShardArray& a) {
  return !a.is_own && !a.part.name.ends_with("sink_logits");
}

std::vector<Traveller> travellers(const MeshProgram& program,
                                  const std::vector<ShardArray>& arrays) {
  std::vector<Traveller> out;
  for (const ShardArray& a : arrays) {
    if (!travels(a)) continue;
    const xla::ShardFrame& frame = program.frame;
    const std::string& name = a.part.name;
    out.push_back({name, xla::is_of_keys(name) ? &frame.columns : &frame.rows,
                   xla::dtype_of(a.part.type.element), a.part.type.dims,
                   program.kernel});
  }
  return out;
}

}  // namespace

// If the head dim does not fill the lanes, the tokens lie along them around our
// kernels and in permutations. Elsewhere the head dim counts as padded to whole
// lanes, the largest layout.
int64_t Traveller::bytes(int64_t tokens) const {
  xla::Dims moved = dims;
  moved[2] = tokens;
  const bool dense = kernel || exchange->kind == TileExchange::rounds;
  if (moved.size() == 4 && !dense) moved[3] = round_up(moved[3], 128);
  return device_bytes(dtype, moved);
}

std::vector<int64_t> Traveller::came() const {
  std::vector<int64_t> out;
  for (const int64_t tokens : exchange->came_tokens()) {
    out.push_back(bytes(tokens));
  }
  return out;
}

int64_t Traveller::counters() const {
  return std::ssize(exchange->came_tokens()) *
         (exchange->ragged() ? kRaggedCounters : kRoundCounters);
}

bool is_ragged(const MeshProgram& program) {
  return program.frame.rows.ragged() || program.frame.columns.ragged();
}

std::vector<Traveller> senders(const MeshProgram& program) {
  return travellers(program, program.arrays.arguments);
}

std::vector<Traveller> homecomers(const MeshProgram& program) {
  std::vector<Traveller> out = travellers(program, program.arrays.results);
  for (Traveller& t : out) {
    if (t.of_keys()) t.dtype = Dtype::f32;
  }
  return out;
}

int64_t counters_of(const MeshProgram& program) {
  int64_t out = program.counters;
  for (const auto& some : {senders(program), homecomers(program)}) {
    for (const Traveller& t : some) {
      out += t.counters();
      if (t.dims.size() > 3 || !is_ragged(program)) continue;
      for (const int64_t bytes : t.came()) out += 2 * bytes;
    }
  }
  return out;
}

bool is_given(const Traveller& homecomer, const MeshProgram& program) {
  if (homecomer.comes()) return false;
  const auto result =
      std::ranges::find(program.arrays.results, homecomer.name,
                        [](const ShardArray& a) { return a.part.name; });
  return xla::dtype_of(result->part.type.element) == homecomer.dtype;
}

}  // namespace tessera::fit
