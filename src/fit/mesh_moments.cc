// fit/mesh_moments.cc: the scratch of a mesh's program around our kernels.
//
// The program has three moments, one after the other: the last call waits for
// all tiles, and results go home after it:
//   - exchange: each array that travels, own tiles and those that come, and for
//     each of its rounds a buffer that leaves and one that arrives (a ragged
//     exchange is one round, and so is a gather). The kernel may read arriving
//     buffers of keys in place. Early calls run now, with their results;
//   - attend: the arrays, and what is made for all tiles;
//   - home: what was made, own tiles of each result, and the rounds' buffers.
// A call's columns between chunks of queries count in the moment of the call.
// The compiler lays the moments over each other, so scratch is that of the
// moment that takes most; all buffers of a moment count as if they existed at
// once. Kernels read and write HBM, so only the rounds' buffers and own tiles
// of results at home may lie in the core's memory.
#include <array>
#include <span>
#include <utility>

#include "fit/mesh_scratch.h"
#include "lanes/mosaic/shards.h"

namespace tessera::fit {
namespace {

using Parts = std::vector<MemoryPart>;

int64_t sum(const Parts& parts) {
  int64_t out = 0;
  for (const MemoryPart& p : parts) out += p.bytes;
  return out;
}

MemoryPart part(const Traveller& t, const char* what, int64_t bytes) {
  return {t.name + what, MemoryKind::scratch, bytes};
}

class Moments {
 public:
  Moments(const MeshProgram& program, const Chip& chip)
      : program_(program), chip_(chip), counters_(program.counters) {}

  void gather(const Traveller& t) {
    if (program_.in_turns && t.of_keys()) return gather_keys(t);
    if (!t.comes()) return;
    const MemoryPart all = part(t, " of all tiles", t.all());
    exchange_.push_back(all);
    attend_.push_back(all);
    add_rounds(exchange_, t, "rounds of ");
  }

  void bring_home(const Traveller& t) {
    if (program_.in_turns && t.of_keys()) {
      add(everywhere(), part(t, " of own tiles", t.own()));
      add(everywhere(), came_part(t));
      add_rounds(home_, t, "rounds home of ", lies_apart(t) ? 1 : 2);
      return;
    }
    if (is_given(t, program_)) return;
    const MemoryPart all = part(t, " of all tiles", t.all());
    if (program_.in_turns) exchange_.push_back(all);
    attend_.push_back(all);
    home_.push_back(all);
    if (!t.comes()) return;
    home_.push_back(part(t, " at home", t.own()));
    home_.back().core = t.own() <= chip_.core;
    add_rounds(home_, t, "rounds home of ");
  }

  // Adds what one call leaves to the next.
  void hand_on(const MemoryPart& part) { add(everywhere(), part); }

  void keep_between_chunks(const std::array<int64_t, kMoments>& bytes) {
    for (size_t i = 0; i < bytes.size(); ++i) {
      if (bytes[i] == 0) continue;
      everywhere()[i]->push_back(
          {"columns between chunks", MemoryKind::scratch, bytes[i]});
    }
  }

  // The parts of the moment that takes most.
  Parts take() {
    Parts out = std::move(attend_);
    for (Parts* other : {&exchange_, &home_}) {
      if (sum(*other) > sum(out)) out = std::move(*other);
    }
    out.push_back({"counters", MemoryKind::scratch, counters_});
    return out;
  }

 private:
  std::array<Parts*, kMoments> everywhere() {  // by Moment
    return {&exchange_, &attend_, &home_};
  }
  static void add(std::span<Parts* const> moments, const MemoryPart& part) {
    for (Parts* moment : moments) moment->push_back(part);
  }

  // Whether the kernel reads each round's buffer in place, and its results for
  // that round leave for home without a copy.
  static bool lies_apart(const Traveller& keys) {
    const xla::Exchange& e = *keys.exchange;
    return !e.ragged() && mosaic::came_arrays_of(e) == e.came_tokens();
  }
  static MemoryPart came_part(const Traveller& t) {
    const xla::Exchange& e = *t.exchange;
    return part(t, " of tiles that came", t.bytes(e.max_received() * e.tokens));
  }

  // Own keys stay where they are; keys that come lie apart from them.
  void gather_keys(const Traveller& t) {
    attend_.push_back(came_part(t));
    if (!lies_apart(t)) exchange_.push_back(came_part(t));
    add_rounds(exchange_, t, "rounds of ");
  }

  void add_rounds(Parts& to, const Traveller& t, const char* what,
                  int64_t buffers = 2) {
    counters_ += t.counters();
    MemoryPart rounds = {what + t.name, MemoryKind::scratch};
    for (const int64_t bytes : t.came()) rounds.bytes += buffers * bytes;
    if (rounds.bytes == 0) return;
    rounds.core = rounds.bytes <= chip_.core;
    to.push_back(std::move(rounds));
  }

  const MeshProgram& program_;
  const Chip& chip_;
  Parts exchange_, attend_, home_;
  int64_t counters_ = 0;
};

}  // namespace

std::vector<MemoryPart> kernel_mesh_scratch(const MeshProgram& program,
                                            const Chip& chip) {
  Moments moments(program, chip);
  for (const Traveller& t : senders(program)) moments.gather(t);
  for (const Traveller& t : homecomers(program)) moments.bring_home(t);
  if (program.handed_on) moments.hand_on(*program.handed_on);
  moments.keep_between_chunks(program.between_chunks);
  return moments.take();
}

}  // namespace tessera::fit
