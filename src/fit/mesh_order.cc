// fit/mesh_order.cc: see mesh_order.h.
//
// libtpu's dumps showed this order (XLA_FLAGS=--xla_dump_to):
//   - before a device attends, values are sent, then keys, then arrays of
//     queries. Each round has a buffer that leaves, made at once, and one that
//     arrives, taken when the permutation starts; at most five are under way.
//     The first array is waited for about where a sixth would start, each other
//     array when it is put together;
//   - a gather begins once the buffers of queries are made, and their
//     permutations wait for it; what it brings is put behind own tiles at once;
//   - ragged exchanges (ragged.h) send queries first;
//   - then the sums of dK and dV and the rows of out or dQ are made, and the
//     scratch of attention;
//   - parts of the sums leave for home. One op cuts parts of one size, and a
//     whole sum is kept until all its parts, own tiles too, are cut. If keys
//     were gathered, their sums go one after the other: each is cut, laid out
//     for its all_to_all, and added before the next.
#include "fit/mesh_order.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "fit/permutations.h"
#include "fit/ragged.h"

namespace tessera::fit {
namespace {

using Place = Heap::Place;

Kind kind_of(const Traveller& t) {
  if (!t.of_keys()) return Kind::rows;
  return t.name.ends_with('v') ? Kind::values : Kind::keys;
}

std::vector<Traveller> in_turn(std::vector<Traveller> travellers,
                               const Kinds& turn) {
  std::ranges::stable_sort(travellers, {}, [&](const Traveller& t) {
    return std::ranges::find(turn, kind_of(t)) - turn.begin();
  });
  return travellers;
}

class Order {
 public:
  Order(const MeshProgram& program, const Way& way, bool keeps_fullest)
      : program_(program),
        way_(way),
        heap_(keeps_fullest),
        homecomers_(in_turn(homecomers(program), way.sent)) {}

  Heap play() {
    std::vector<Traveller> travel = in_turn(senders(program_), way_.sent);
    std::erase_if(travel, [](const Traveller& t) { return !t.comes(); });
    const bool ragged = !travel.empty() && travel.front().exchange->ragged();
    const bool gathers = program_.frame.columns.gathers();
    ragged ? exchange(travel) : gathers ? gather(travel) : permute(travel);
    attend();
    std::erase_if(homecomers_, [](const Traveller& t) { return !t.comes(); });
    if (gathers) gather_home();
    ragged ? exchange_home() : permute_home();
    return std::move(heap_);
  }

 private:
  Place take(const char* what, const Traveller& t, int64_t bytes) {
    return heap_.take(what + t.name, bytes);
  }
  Place take_all(const Traveller& t) {
    return heap_.take(t.name + " of all tiles", t.all());
  }

  Place put_together(const Traveller& t) {
    if (!way_.is_behind) return take_all(t);
    return heap_.take_behind(t.name + " of all tiles", t.all());
  }

  void permute(const std::vector<Traveller>& travel) {
    Permutations rounds(heap_, "rounds of ");
    bool has_waited = false;
    size_t buffers = 0;
    Places gathered;
    for (const Traveller& t : travel) {
      const std::vector<int64_t> sizes = rounds_of(t);
      const bool is_early = way_.is_early && sizes.size() > 3;
      for (const int64_t bytes : sizes) {
        const Place leaves = take("rounds of ", t, bytes);
        const bool waits =
            way_.waits_at == 0 ? rounds.is_full() : ++buffers >= way_.waits_at;
        const bool is_first = rounds.is_idle() || rounds.oldest() == t.name;
        if (waits && !is_first && !has_waited) {
          rounds.end_all(std::string(rounds.oldest()));
          has_waited = true;
        } else if (is_first && rounds.is_full()) {
          rounds.end_oldest();
        }
        rounds.start({t.name, bytes, leaves});
        if (is_early && !gathered.contains(t.name)) {
          gathered[t.name] = take_all(t);
        }
      }
    }
    for (const Traveller& t : in_turn(travel, way_.gathered)) {
      rounds.end_all(t.name);
      const auto early = gathered.find(t.name);
      gathered_.push_back(early == gathered.end() ? put_together(t)
                                                  : early->second);
      rounds.give_back(t.name);
    }
  }
  std::vector<int64_t> rounds_of(const Traveller& t) const {
    std::vector<int64_t> out = t.came();
    if (way_.largest_first) {
      std::ranges::stable_sort(out, std::ranges::greater{});
      return out;
    }
    // A round of one tile needs no loop to make it, so it comes last.
    const int64_t tile = t.bytes(t.exchange->tokens);
    std::stable_partition(out.begin(), out.end(),
                          [&](int64_t bytes) { return bytes > tile; });
    return out;
  }

  void gather(const std::vector<Traveller>& travel) {
    Permutations rounds(heap_, "rounds of ");
    for (const Traveller& t : travel) {
      if (t.of_keys()) continue;
      for (const int64_t bytes : rounds_of(t)) {
        rounds.start({t.name, bytes, take("rounds of ", t, bytes)});
      }
    }
    for (const Traveller& t : travel) {
      if (!t.of_keys()) continue;
      const Place came = take("rounds of ", t, t.came().front());
      gathered_.push_back(take_all(t));
      heap_.give_back(came);
      // The counter lies in the freed place, so the next gather does not fit.
      gathered_.push_back(heap_.take("counters between gathers", kCounter));
    }
    for (const Traveller& t : travel) {
      if (t.of_keys()) continue;
      rounds.end_all(t.name);
      gathered_.push_back(take_all(t));
      rounds.give_back(t.name);
    }
  }

  void exchange(const std::vector<Traveller>& travel) {
    const auto flags = [&] {  // which keys count
      if (program_.backward) heap_.take("flags of keys", kCounter);
    };
    for (const auto& [name, place] :
         gather_ragged(heap_, travel, flags, way_.is_in_turn)) {
      gathered_.push_back(place);
    }
  }

  void attend() {
    // Sums of keys are made in reverse order: the first to go home lies last.
    std::vector<Traveller> makes = homecomers_;
    const auto rows =
        std::stable_partition(makes.begin(), makes.end(),
                              [](const Traveller& t) { return t.of_keys(); });
    std::reverse(makes.begin(), rows);
    for (const Traveller& t : makes) {
      if (!is_given(t, program_)) made_[t.name] = take_all(t);
    }
    std::vector<Place> works;
    for (const MemoryPart& part : program_.attends) {
      if (part.bytes > 0) works.push_back(heap_.take(part.name, part.bytes));
    }
    for (const Place place : works) heap_.give_back(place);
    for (const Place place : gathered_) heap_.give_back(place);
    if (way_.seam && *way_.seam < heap_.given_back().size()) {
      heap_.take_at(heap_.given_back()[*way_.seam], "counters at home", 1);
    }
  }

  // A part of what was made. Own rows are not cut: they are in the result.
  struct Cut {
    const Traveller* of = nullptr;
    int64_t bytes = 0;
    bool is_own = false;
  };
  static std::vector<Cut> cuts_of(const Traveller& t) {
    std::vector<Cut> out;
    if (t.of_keys()) out.push_back({&t, t.own(), true});
    for (const int64_t bytes : t.came()) out.push_back({&t, bytes, false});
    return out;
  }
  // The cuts whose size another cut has too; one op makes them.
  static std::vector<Cut> at_once(const std::vector<Cut>& cuts) {
    std::vector<Cut> out;
    for (const Cut& size : cuts) {
      if (std::ranges::count(cuts, size.bytes, &Cut::bytes) > 1)
        out.push_back(size);
    }
    return out;
  }

  Place cut(const Cut& c) {
    const Place out = c.is_own
                          ? heap_.take(c.of->name + " at home", c.bytes)
                          : heap_.take("rounds home of " + c.of->name, c.bytes);
    if (--uncut_[c.of->name] == 0) heap_.give_back(made_.at(c.of->name));
    return out;
  }

  void permute_home() {
    Permutations rounds(heap_, "rounds home of ");
    const auto leave = [&](const Cut& c, Place leaves) {
      if (rounds.is_full()) rounds.end_oldest();
      rounds.start({c.of->name, c.bytes, leaves});
    };
    std::vector<Cut> later, own;
    for (const Traveller& t : homecomers_) {
      const std::vector<Cut> cuts = cuts_of(t), together = at_once(cuts);
      uncut_[t.name] = cuts.size();
      std::vector<std::pair<Cut, Place>> first;
      for (const Cut& c : together) {
        const Place place = cut(c);
        if (!c.is_own) first.emplace_back(c, place);
      }
      for (const auto& [c, place] : first) leave(c, place);
      for (const Cut& c : cuts) {
        if (std::ranges::count(together, c.bytes, &Cut::bytes) > 0) continue;
        (c.is_own ? own : later).push_back(c);
      }
    }
    for (const Cut& c : later) leave(c, cut(c));
    for (const Cut& c : own) cut(c);
  }

  void gather_home() {
    for (const Traveller& t : homecomers_) {
      if (!t.of_keys()) continue;
      const auto buffer = [&] {
        return take("rounds home of ", t, t.came().front());
      };
      const Place first = buffer(), leaves = buffer();
      heap_.give_back(first);
      const Place arrives = buffer();
      heap_.give_back(leaves);
      heap_.take(t.name + " at home", t.own());
      heap_.give_back(made_.at(t.name));
      heap_.give_back(arrives);
    }
    std::erase_if(homecomers_, [](const Traveller& t) { return t.of_keys(); });
  }

  void exchange_home() {
    return_ragged(heap_, homecomers_);
    for (const Traveller& t : homecomers_) {
      if (!t.of_keys()) continue;
      heap_.take(t.name + " at home", t.own());
      heap_.give_back(made_.at(t.name));
    }
  }

  const MeshProgram& program_;
  const Way& way_;
  Heap heap_;
  std::vector<Traveller> homecomers_;
  std::vector<Place> gathered_;
  Places made_;
  std::map<std::string, size_t> uncut_;
};

}  // namespace

Heap play(const MeshProgram& program, const Way& way, bool keeps_fullest) {
  return Order(program, way, keeps_fullest).play();
}

}  // namespace tessera::fit
