// fit/ragged.cc: see ragged.h.
#include "fit/ragged.h"

#include <algorithm>
#include <utility>

namespace tessera::fit {
namespace {

using Place = Heap::Place;

// Arrays that share one exchange: they differ only in their heads.
using Together = std::vector<Traveller>;

std::vector<Together> together(const std::vector<Traveller>& travellers) {
  std::vector<Together> out;
  const auto differ = [](Traveller a, const Traveller& b) {
    a.dims[1] = b.dims[1];
    return a.exchange != b.exchange || a.dtype != b.dtype || a.dims != b.dims;
  };
  for (const Traveller& t : travellers) {
    const auto with = std::ranges::find_if(
        out, [&](const Together& all) { return !differ(all.front(), t); });
    with == out.end() ? out.push_back({t}) : with->push_back(t);
  }
  return out;
}

class Buffers {
 public:
  Buffers(Heap& heap, std::string name) : heap_(heap), name_(std::move(name)) {}

  Place of(const Together& arrays) {
    std::string names;
    int64_t bytes = 0;
    for (const Traveller& t : arrays) {
      names += (names.empty() ? "" : ", ") + t.name;
      bytes += t.came().front();
    }
    return heap_.take(name_ + names, bytes);
  }

 private:
  Heap& heap_;
  std::string name_;
};

// Splits what came by array and puts the rows of each behind own tiles.
void take_apart(Heap& heap, Buffers& buffers, const Together& arrays,
                Place came, Places& out) {
  std::vector<Place> parts = {came};
  if (arrays.size() > 1) {
    parts.clear();
    for (const Traveller& t : arrays) parts.push_back(buffers.of({t}));
    heap.give_back(came);
  }
  for (size_t i = 0; i < arrays.size(); ++i) {
    const Traveller& t = arrays[i];
    const Place turned = buffers.of({t});
    heap.give_back(parts[i]);
    out[t.name] = heap.take(t.name + " of all tiles", t.all());
    heap.give_back(turned);
  }
}

}  // namespace

Places gather_ragged(Heap& heap, const std::vector<Traveller>& travellers,
                     const std::function<void()>& beside, bool is_in_turn) {
  const std::vector<Together> all = together(travellers);
  Buffers buffers(heap, "rounds of ");
  Places out;
  std::vector<Place> came;
  size_t taken = 0;
  const auto take_until = [&](size_t end) {
    for (; taken < end; ++taken) {
      take_apart(heap, buffers, all[taken], came[taken], out);
    }
  };
  Place leaves = buffers.of(all.front());
  for (size_t i = 0; i < all.size(); ++i) {
    came.push_back(buffers.of(all[i]));
    const bool is_last = i + 1 == all.size();
    const Place next = is_last ? leaves : buffers.of(all[i + 1]);
    if (is_in_turn) take_until(i);
    if (is_last) break;
    heap.give_back(leaves);
    leaves = next;
  }
  beside();
  take_until(all.size() - 1);
  heap.give_back(leaves);
  take_until(all.size());
  return out;
}

void return_ragged(Heap& heap, const std::vector<Traveller>& homecomers) {
  Buffers buffers(heap, "rounds home of ");
  for (const Together& arrays : together(homecomers)) {
    std::vector<Place> parts;
    for (const Traveller& t : arrays) parts.push_back(buffers.of({t}));
    if (arrays.size() > 1) {
      const Place joined = buffers.of(arrays);
      for (const Place place : parts) heap.give_back(place);
      parts = {joined};
    }
    buffers.of(arrays);  // turned to tiles
    heap.give_back(parts.front());
    buffers.of(arrays);  // what arrives
  }
}

}  // namespace tessera::fit
