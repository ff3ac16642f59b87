// fit/heap.cc: see heap.h.
#include "fit/heap.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace tessera::fit {

Heap::Place Heap::take(std::string name, int64_t bytes) {
  const auto gap = gaps_.lower_bound({bytes, 0});
  if (gap == gaps_.end()) return take_behind(std::move(name), bytes);
  return put(gap->second, std::move(name), bytes);
}

void Heap::take_at(Place place, std::string name, int64_t bytes) {
  const auto after = taken_.upper_bound(place);
  const bool fits = after == taken_.end() || place + bytes <= after->first;
  if (fits && end_before(after) <= place) put(place, std::move(name), bytes);
}

Heap::Place Heap::take_behind(std::string name, int64_t bytes) {
  return put(end_before(taken_.end()), std::move(name), bytes);
}

Heap::Place Heap::put(Place place, std::string name, int64_t bytes) {
  const auto after = taken_.upper_bound(place);
  const Place begin = end_before(after);
  if (after != taken_.end()) {
    drop_gap(begin, after->first);
    add_gap(place + bytes, after->first);
  }
  add_gap(begin, place);
  taken_[place] = {bytes, std::move(name)};
  if (place + bytes > reach_) {
    reach_ = place + bytes;
    if (keeps_fullest_) fullest_ = taken_;
  }
  return place;
}

void Heap::give_back(Place place) {
  const auto gone = taken_.find(place);
  if (gone == taken_.end()) return;
  const auto after = std::next(gone);
  const Place begin = end_before(gone);
  drop_gap(begin, place);
  if (after != taken_.end()) {
    drop_gap(place + gone->second.bytes, after->first);
    add_gap(begin, after->first);
  }
  taken_.erase(gone);
  if (std::ranges::find(given_back_, place) == given_back_.end()) {
    given_back_.push_back(place);
  }
}

Heap::Place Heap::end_before(std::map<Place, Array>::const_iterator at) const {
  if (at == taken_.begin()) return 0;
  const auto& [begin, array] = *std::prev(at);
  return begin + array.bytes;
}

void Heap::add_gap(Place begin, Place end) {
  if (begin < end) gaps_.emplace(end - begin, begin);
}

void Heap::drop_gap(Place begin, Place end) {
  gaps_.erase({end - begin, begin});
}

std::vector<MemoryPart> Heap::fullest() const {
  std::vector<MemoryPart> out;
  int64_t holes = reach_;
  for (const auto& [begin, array] : fullest_) {
    holes -= array.bytes;
    const auto same = std::ranges::find(out, array.name, &MemoryPart::name);
    if (same != out.end()) {
      same->bytes += array.bytes;
    } else {
      out.push_back({array.name, MemoryKind::scratch, array.bytes});
    }
  }
  if (holes > 0) out.push_back({"holes", MemoryKind::scratch, holes});
  return out;
}

}  // namespace tessera::fit
