// lanes/xla/exchange.cc: a round is a buffer of tiles and a collective permute;
// a ragged exchange is one buffer of all tiles; a gather sends the device's own
// tiles without a buffer.
#include "lanes/xla/exchange.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <utility>

namespace tessera::xla {
namespace {

using Values = Writer::Values;

constexpr size_t kHeads = 1, kTokens = 2;  // dimensions

// Groups of devices that differ only along "seq", in that order.
Writer::Groups groups_of(const Mesh& mesh) {
  int64_t below = 1;  // devices between neighbours along "seq"
  for (auto axis = mesh.axes.rbegin();
       axis != mesh.axes.rend() && axis->does() != "seq"; ++axis) {
    below *= axis->size;
  }
  const int64_t seq = mesh.size("seq");
  Writer::Groups out;
  for (int64_t first = 0; first < mesh.devices(); ++first) {
    if (first / below % seq != 0) continue;
    Dims& group = out.emplace_back();
    for (int64_t s = 0; s < seq; ++s) group.push_back(first + s * below);
  }
  return out;
}

// Hops from each device to the one `shift` further along "seq", cyclically.
Writer::Hops hops_of(const Writer::Groups& groups, int64_t shift) {
  Writer::Hops out;
  for (const Dims& group : groups) {
    const auto n = static_cast<int64_t>(group.size());
    for (int64_t s = 0; s < n; ++s) {
      out.emplace_back(group[static_cast<size_t>(s)],
                       group[static_cast<size_t>((s + shift) % n)]);
    }
  }
  return out;
}

Writer::Hops back(Writer::Hops hops) {
  for (auto& [from, to] : hops) std::swap(from, to);
  return hops;
}

Dims with_tokens(Dims dims, int64_t tokens) {
  dims[kTokens] = tokens;
  return dims;
}

// The start indices of a block that begins at `token`.
Values at_token(Writer& w, const Value& array, const Value& token) {
  Values out;
  const Value zero = w.integer(0);
  for (size_t d = 0; d < array.dims().size(); ++d) {
    out.push_back(d == kTokens ? token : zero);
  }
  return out;
}

Value zeros(Writer& w, const Type& type) {
  return type.element == Element::i32 ? w.integer(0, type.dims)
                                      : w.real(0, type.dims, type.element);
}

// Tiles that one op moves: those of a round, or of all rounds.
struct Leg {
  int64_t first = 0, tiles = 0;  // within the tiles of all rounds
  size_t round = 0;
};

std::vector<Leg> legs_of(const Exchange& e) {
  if (e.is_one_op()) {
    if (e.max_received() == 0) return {};
    return {{0, e.max_received(), 0}};
  }
  std::vector<Leg> out;
  int64_t first = 0;
  for (size_t r = 0; r < e.rounds.size(); ++r) {
    const int64_t tiles = e.rounds[r].capacity;
    if (tiles > 0) out.push_back({first, tiles, r});
    first += tiles;
  }
  return out;
}

// A buffer that is sent has its tiles concatenated along tokens. In a ragged
// exchange tiles are dimension 0, the only dimension that may be ragged.
Dims buffer_dims(const Exchange& e, const Dims& array, int64_t tiles) {
  if (!e.ragged()) return with_tokens(array, tiles * e.tokens);
  Dims out = with_tokens(array, e.tokens);
  out[0] = tiles;
  return out;
}

Values at_tile(Writer& w, const Exchange& e, const Value& buffer,
               const Value& tile) {
  if (!e.ragged()) {
    const Value size = w.integer(static_cast<int32_t>(e.tokens));
    return at_token(w, buffer, w.mul(tile, size));
  }
  Values out(buffer.dims().size(), w.integer(0));
  out[0] = tile;
  return out;
}

// Swaps the first two dimensions.
Value turned(Writer& w, const Value& a) {
  Dims order(a.dims().size());
  std::iota(order.begin(), order.end(), 0);
  std::swap(order[0], order[1]);
  return w.transpose(a, order);
}

// Convert between [1, heads, tokens, ...] and a buffer that is sent.
Value buffer_of(Writer& w, const Exchange& e, const Value& array) {
  if (!e.ragged()) return array;
  Dims dims = buffer_dims(e, array.dims(), array.dims()[1]);
  dims[1] = array.dims()[kTokens] / e.tokens;
  return turned(w, w.reshape(array, dims));
}
Value array_of(Writer& w, const Exchange& e, const Value& buffer) {
  if (!e.ragged()) return buffer;
  Dims dims = with_tokens(buffer.dims(), buffer.dims()[0] * e.tokens);
  dims[0] = 1;
  return w.reshape(turned(w, buffer), dims);
}

// Groups the arrays that share the same ops.
bool go_together(const Exchange& e, const Value& a, const Value& b) {
  Dims dims = b.dims();
  dims[kHeads] = a.dims()[kHeads];
  return e.ragged() && a.type.element == b.type.element && a.dims() == dims;
}
std::vector<std::vector<Coming::Part>> together(const Exchange& e,
                                                const Values& arrays) {
  std::vector<std::vector<Coming::Part>> out;
  for (size_t i = 0; i < arrays.size(); ++i) {
    const Coming::Part part = {i, arrays[i].dims()[kHeads]};
    const auto with = std::ranges::find_if(out, [&](const auto& parts) {
      return go_together(e, arrays[parts.front().array], arrays[i]);
    });
    with == out.end() ? out.push_back({part}) : with->push_back(part);
  }
  return out;
}
int64_t heads_of(const std::vector<Coming::Part>& parts) {
  int64_t out = 0;
  for (const Coming::Part& p : parts) out += p.heads;
  return out;
}

// Join arrays along heads into a buffer, or a block of it, and split it again.
Value side_by_side(Writer& w, const Values& parts) {
  return parts.size() == 1 ? parts.front() : w.join(parts, kHeads);
}
Values split(Writer& w, const std::vector<Coming::Part>& parts,
             const Value& buffer) {
  if (parts.size() == 1) return {buffer};
  Values out;
  int64_t first = 0;
  for (const Coming::Part& p : parts) {
    out.push_back(w.part(buffer, kHeads, first, first + p.heads));
    first += p.heads;
  }
  return out;
}

enum class Way : uint8_t { away, back };

Value travel(Writer& w, const Exchange& e, const Leg& leg, const Value& buffer,
             Way way) {
  if (e.gathers()) {
    // Back without a sum, so that put_home() sets the order of adding.
    return way == Way::away ? w.gather(buffer, kTokens, e.groups)
                            : w.exchange(buffer, kTokens, e.groups, kTokens);
  }
  if (!e.ragged()) {
    const Writer::Hops& hops = e.hops[leg.round];
    return w.permute(buffer, way == Way::away ? hops : back(hops));
  }
  const auto slices = [&](Way of, int64_t what) {
    const int64_t at = of == Way::away ? 0 : 1;
    const Value row = w.part(w.argument(e.slices), 0, at, at + 1);
    return w.reshape(w.part(row, 1, what, what + 1), {row.dims().back()});
  };
  const Way other = way == Way::away ? Way::back : Way::away;
  const Value begins = slices(way, 0);
  // Tiles begin at the same place at both ends, so `begins` serves twice.
  return w.ragged_exchange(buffer, zeros(w, buffer.type),
                           {begins, slices(way, 1), begins, slices(other, 1)},
                           e.groups);
}

// The tiles that a device sends, in one buffer.
Value leaving_tiles(Writer& w, const Exchange& e, const Leg& leg,
                    const std::vector<Coming::Part>& parts, const Values& own) {
  const Value& first = own[parts.front().array];
  if (e.gathers()) return first;
  Dims dims = first.dims();
  dims[kHeads] = heads_of(parts);
  const Value size = w.integer(static_cast<int32_t>(e.tokens));
  const Value none =
      zeros(w, {first.type.element, buffer_dims(e, dims, leg.tiles)});
  const Value end = w.integer(static_cast<int32_t>(leg.tiles));
  const Value begin = w.integer(static_cast<int32_t>(leg.first));
  const auto put = [&](const Value& i, const Values& filled) {
    const Value tile = w.element(w.argument(e.sends), w.add(begin, i));
    const Value from = w.mul(tile, size);
    // For an unused slot the slice is clamped, so the last tile is sent.
    Values blocks;
    for (const Coming::Part& p : parts) {
      const Value& array = own[p.array];
      const Values at = at_token(w, array, from);
      blocks.push_back(w.slice(array, at, with_tokens(array.dims(), e.tokens)));
    }
    const Value block = side_by_side(w, blocks);
    const Values to = at_tile(w, e, filled.front(), i);
    return Values{w.update(filled.front(), block, to)};
  };
  return w.count(w.integer(0), end, Values{none}, put).front();
}

}  // namespace

int64_t Exchange::max_received() const {
  if (gathers()) {
    const auto devices = static_cast<int64_t>(groups.front().size());
    return rounds.empty() ? 0 : devices * own;
  }
  int64_t out = 0;
  for (const Round& r : rounds) out += r.capacity;
  return out;
}

std::vector<int64_t> Exchange::came_tokens() const {
  std::vector<int64_t> out;
  for (const Leg& leg : legs_of(*this)) out.push_back(leg.tiles * tokens);
  return out;
}

Exchange exchange_of(const Shards& shards, bool queries) {
  const Traffic& traffic = queries ? shards.q : shards.kv;
  const ShardShapes& s = shards.shapes;
  Exchange out = {queries ? "q_sends" : "kv_sends",
                  queries ? "q_slices" : "kv_slices",
                  queries ? s.own_rows : s.own_columns,
                  queries ? shards.tile.q : shards.tile.kv, traffic.rounds};
  // No device needs all queries, so they are exchanged in rounds instead.
  const bool in_rounds = queries && shards.exchange == TileExchange::gather;
  if (!in_rounds) out.kind = shards.exchange;
  Writer::Groups groups = groups_of(shards.mesh);
  if (out.is_one_op()) {
    out.groups = std::move(groups);
    return out;
  }
  for (const Round& r : out.rounds) {
    out.hops.push_back(hops_of(groups, r.shift));
  }
  return out;
}

std::vector<Coming> send_tiles(Writer& w, const Exchange& e,
                               const Values& own) {
  std::vector<Coming> out;
  for (std::vector<Coming::Part>& parts : together(e, own)) {
    Coming coming = {std::move(parts), {}};
    for (const Leg& leg : legs_of(e)) {
      const Value leaving = leaving_tiles(w, e, leg, coming.parts, own);
      coming.buffers.push_back(travel(w, e, leg, leaving, Way::away));
    }
    out.push_back(std::move(coming));
  }
  return out;
}

std::vector<Values> receive_tiles(Writer& w, const Exchange& e,
                                  const Coming& coming) {
  std::vector<Values> out(coming.parts.size());
  for (const Value& buffer : coming.buffers) {
    const Values parts = split(w, coming.parts, buffer);
    for (size_t p = 0; p < parts.size(); ++p) {
      out[p].push_back(array_of(w, e, parts[p]));
    }
  }
  return out;
}

namespace {

// A device's own array, and a buffer of tiles that came back for it.
struct Homecomers {
  Value own, home;
};
// The own array with the tiles of `home` put in place or added. For an unused
// slot the last tile (the index is clamped) is written back unchanged.
Value put_home(Writer& w, const Exchange& e, const Leg& leg,
               const Homecomers& of, Homecoming how) {
  const Dims dims = with_tokens(of.own.dims(), e.tokens);
  const Value end = w.integer(static_cast<int32_t>(leg.tiles));
  const Value begin = w.integer(static_cast<int32_t>(leg.first));
  const auto put = [&](const Value& i, const Values& carried) {
    const Value& own = carried.front();
    const Value at = w.add(begin, i);
    const Value number = w.element(w.argument(e.sends), at);
    const Value size = w.integer(static_cast<int32_t>(e.tokens));
    const Values to = at_token(w, own, w.mul(number, size));
    const Value before = w.slice(own, to, dims);
    const Values from = at_tile(w, e, of.home, i);
    Value block = w.slice(of.home, from, dims);
    if (how == Homecoming::added) block = w.add(before, block);
    const Value is_tile = w.compare(Compare::less, number,
                                    w.integer(static_cast<int32_t>(e.own)));
    return Values{w.update(own, w.select(is_tile, block, before), to)};
  };
  return w.count(w.integer(0), end, Values{of.own}, put).front();
}

// The array whose tokens go home; it may hold others too.
const Value& leaving(const Made& made) {
  return made.came.empty() ? made.own : made.came.front();
}

// The tokens that leg number `leg` of `legs` takes home.
Value homeward_part(Writer& w, const Exchange& e, const std::vector<Leg>& legs,
                    size_t leg, const Made& made) {
  if (made.came.size() == legs.size()) return made.came[leg];
  const Value& came = leaving(made);
  const int64_t first = made.came.empty() ? e.own : 0;
  const Value there =
      w.integer(static_cast<int32_t>((first + legs[leg].first) * e.tokens));
  return w.slice(came, at_token(w, came, there),
                 with_tokens(came.dims(), legs[leg].tiles * e.tokens));
}

}  // namespace

Values return_tiles(Writer& w, const Exchange& e, const std::vector<Made>& made,
                    Homecoming how) {
  Values all, out;
  for (const Made& m : made) {
    all.push_back(leaving(m));
    const Dims dims = with_tokens(m.own.dims(), e.own * e.tokens);
    const Values begin = at_token(w, m.own, w.integer(0));
    out.push_back(w.slice(m.own, begin, dims));
  }
  for (const std::vector<Coming::Part>& parts : together(e, all)) {
    const std::vector<Leg> legs = legs_of(e);
    for (size_t i = 0; i < legs.size(); ++i) {
      Values buffers;
      for (const Coming::Part& p : parts) {
        buffers.push_back(
            buffer_of(w, e, homeward_part(w, e, legs, i, made[p.array])));
      }
      const Value buffer = side_by_side(w, buffers);
      const Values home =
          split(w, parts, travel(w, e, legs[i], buffer, Way::back));
      for (size_t p = 0; p < parts.size(); ++p) {
        Value& own = out[parts[p].array];
        own = put_home(w, e, legs[i], {own, home[p]}, how);
      }
    }
  }
  return out;
}

}  // namespace tessera::xla
