// fit/heap.cc: see heap.h.
#include "fit/heap.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

namespace tessera::fit {

Heap::Place Heap::take(std::string name, int64_t bytes) {
  constexpr int64_t kNone = std::numeric_limits<int64_t>::max();
  Place place = 0;
  int64_t smallest = kNone, end = 0;
  for (const auto& [begin, array] : taken_) {
    const int64_t gap = begin - end;
    if (gap >= bytes && gap < smallest) {
      smallest = gap;
      place = end;
    }
    end = begin + array.bytes;
  }
  return put(smallest == kNone ? end : place, std::move(name), bytes);
}

void Heap::take_at(Place place, std::string name, int64_t bytes) {
  const auto after = taken_.upper_bound(place);
  const bool fits = after == taken_.end() || place + bytes <= after->first;
  const auto before = after == taken_.begin() ? after : std::prev(after);
  const bool is_free =
      before == after || before->first + before->second.bytes <= place;
  if (fits && is_free) put(place, std::move(name), bytes);
}

Heap::Place Heap::take_behind(std::string name, int64_t bytes) {
  const auto last = taken_.rbegin();
  const int64_t end =
      last == taken_.rend() ? 0 : last->first + last->second.bytes;
  return put(end, std::move(name), bytes);
}

Heap::Place Heap::put(Place place, std::string name, int64_t bytes) {
  taken_[place] = {bytes, std::move(name)};
  if (place + bytes > reach_) {
    reach_ = place + bytes;
    fullest_ = taken_;
  }
  return place;
}

void Heap::give_back(Place place) {
  taken_.erase(place);
  if (std::ranges::find(given_back_, place) == given_back_.end()) {
    given_back_.push_back(place);
  }
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
