// fit/mesh_ways.cc: the scratch of lane xla on a mesh, for the worst of the
// schedules that its compiler may choose.
#include <algorithm>

#include "fit/mesh_order.h"

namespace tessera::fit {
namespace {

// With permutations libtpu took up to 1.5% more than any way; a 50th is added.
constexpr int64_t kMargin = 50;

// Whether keys and values take equal bytes.
bool are_alike(const std::vector<Traveller>& senders) {
  int64_t bytes = 0;
  for (const Traveller& t : senders) {
    if (!t.of_keys() || !t.comes()) continue;
    if (bytes != 0 && t.all() != bytes) return false;
    bytes = t.all();
  }
  return true;
}

// Numbers below `end`: all, or kMaxNumbers of them, evenly spaced.
std::vector<size_t> numbers_below(size_t end) {
  constexpr size_t kMaxNumbers = 128;  // eight chips have fewer
  std::vector<size_t> out(std::min(end, kMaxNumbers));
  for (size_t i = 0; i < out.size(); ++i) out[i] = i * end / out.size();
  return out;
}

std::vector<Way> all_turns() {
  std::vector<Way> out;
  Way way;  // its orders are sorted, the first permutations
  do {
    do {
      out.push_back(way);
    } while (std::ranges::next_permutation(way.gathered).found);
  } while (std::ranges::next_permutation(way.sent).found);
  return out;
}

void add_also(std::vector<Way>& out, bool Way::*what) {
  const size_t before = out.size();
  for (size_t i = 0; i < before; ++i) {
    out.push_back(out[i]);
    out.back().*what = true;
  }
}

// Adds the ways of permutations: where the first array is waited for, what is
// put together first and where, and where small arrays lie.
void add_permuted(std::vector<Way>& out, const MeshProgram& program) {
  size_t buffers = 0;
  for (const Traveller& t : senders(program)) buffers += t.came().size();
  for (const Kinds& gathered : {kKeysFirst, kRowsFirst}) {
    for (const size_t waits_at : numbers_below(buffers + 1)) {
      out.push_back({.gathered = gathered, .waits_at = waits_at});
    }
  }
  add_also(out, &Way::largest_first);
  out.push_back({.is_behind = true});
  out.push_back({.largest_first = true, .is_behind = true});
  const size_t places = play(program, {}, false).given_back().size();
  for (const size_t seam : numbers_below(places)) {
    out.push_back({.seam = seam});
  }
  add_also(out, &Way::is_early);
}

// The ways to try. If keys and values differ in size, any kind may go first.
std::vector<Way> ways_of(const MeshProgram& program) {
  std::vector<Way> out;
  if (!are_alike(senders(program))) out = all_turns();
  if (is_ragged(program)) {
    out.push_back({.sent = kRowsFirst});
    out.push_back({.sent = kRowsFirst, .is_in_turn = true});
  } else if (program.frame.columns.gathers()) {
    out.push_back({.largest_first = true});
  } else {
    add_permuted(out, program);
  }
  return out;
}

bool has_permutations(const MeshProgram& program) {
  if (is_ragged(program) || program.frame.columns.gathers()) return false;
  return std::ranges::any_of(senders(program), &Traveller::comes);
}

}  // namespace

std::vector<MemoryPart> xla_mesh_scratch(const MeshProgram& program,
                                         const Chip& chip) {
  Way worst;
  int64_t most = -1;
  for (const Way& way : ways_of(program)) {
    const int64_t reach = play(program, way, false).reach();
    if (reach > most) worst = way;
    most = std::max(most, reach);
  }
  const Heap fullest = play(program, worst, true);
  std::vector<MemoryPart> out = fullest.fullest();
  for (MemoryPart& part : out) {
    const auto attends =
        std::ranges::find(program.attends, part.name, &MemoryPart::name);
    if (attends != program.attends.end()) {
      part = *attends;
    } else {
      part.core = part.bytes <= chip.core;
    }
  }
  if (has_permutations(program)) {
    out.push_back({"margin", MemoryKind::scratch, fullest.reach() / kMargin});
  }
  out.push_back({"counters", MemoryKind::scratch, counters_of(program)});
  return out;
}

}  // namespace tessera::fit
