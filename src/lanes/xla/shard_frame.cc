// lanes/xla/shard_frame.cc: writes the exchanges around a device's own program.
#include "lanes/xla/shard_frame.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "lanes/xla/planned.h"

namespace tessera::xla {
namespace {

using Values = Writer::Values;

// The names of the axes with these roles; "" for a role the mesh does not have.
std::vector<std::string> axes_of(const Mesh& mesh,
                                 std::vector<std::string> roles) {
  for (std::string& role : roles) role = mesh.name_of(role);
  return roles;
}

// The size of dimension 2 (tokens) before the exchange.
int64_t own_tokens(const Exchange& e) { return e.own * e.tokens; }

const Exchange& exchange_of(const ShardFrame& frame, std::string_view name) {
  return is_of_keys(name) ? frame.columns : frame.rows;
}

// Arrays whose tiles are exchanged before attention, if the program has them.
constexpr std::string_view kTravellers[] = {"q",    "k",   "v",   "out",
                                            "dout", "lse", "dlse"};

std::string came_part(std::string_view array, size_t part) {
  return fmt::format("came_{}_{}", array, part);
}

Writer::Spread spread_of(const ShardFrame& frame, const ShardArrays& arrays) {
  Writer::Spread out;
  for (const ShardArray& a : arrays.arguments) out.arguments.push_back(a.axes);
  for (const ShardArray& a : arrays.results) out.results.push_back(a.axes);
  for (const MeshAxis& a : frame.mesh.axes) {
    out.sizes.emplace_back(a.name, a.size);
  }
  return out;
}

// Whether a result is of tokens, which another device may own.
bool goes_home(const ShardArray& result) {
  return !result.is_own && result.part.name != "dsink_logits";
}
// The tiles that a shard sends, round after round. For a gather: by the shard
// that needs them, in the order of shards, each tile at its own number.
std::vector<int32_t> sends_of(const Exchange& e, const Traffic& traffic,
                              size_t shard, int64_t seq) {
  std::vector<int32_t> out(static_cast<size_t>(e.max_received()),
                           static_cast<int32_t>(e.own));
  auto at = out.begin();
  for (size_t r = 0; r < e.rounds.size(); ++r) {
    const std::vector<int32_t>& tiles = traffic.send[shard][r];
    if (e.gathers()) {
      const auto n = static_cast<int64_t>(e.groups.front().size());
      const int64_t to = (seq + e.rounds[r].shift) % n;
      for (const int32_t t : tiles) {
        out[static_cast<size_t>(to * e.own + t)] = t;
      }
      continue;
    }
    std::copy(tiles.begin(), tiles.end(), at);
    at += e.rounds[r].capacity;
  }
  return out;
}

// [away, back] x [begin, tiles] x shard along "seq". A round has the same place
// at its sender and its receiver, so tiles begin at the same index at both.
std::vector<int32_t> slices_of(const Exchange& e, const Traffic& traffic,
                               size_t shard, int64_t seq) {
  const auto n = static_cast<int64_t>(e.groups.front().size());
  const size_t first = shard - static_cast<size_t>(seq);
  std::vector<int32_t> out(static_cast<size_t>(4 * n), 0);
  int32_t begin = 0;
  for (size_t r = 0; r < e.rounds.size(); ++r) {
    const auto put = [&](int64_t way, int64_t to, size_t sender) {
      out[static_cast<size_t>(2 * way * n + to)] = begin;
      out[static_cast<size_t>((2 * way + 1) * n + to)] =
          static_cast<int32_t>(traffic.send[sender][r].size());
    };
    const int64_t shift = e.rounds[r].shift;
    const int64_t from = (seq - shift + n) % n;
    put(0, (seq + shift) % n, shard);
    put(1, from, first + static_cast<size_t>(from));
    begin += static_cast<int32_t>(e.rounds[r].capacity);
  }
  return out;
}

}  // namespace

bool is_of_keys(std::string_view array) {
  return array == "k" || array == "v" || array == "dk" || array == "dv";
}

ShardFrame frame_of(const Shards& shards) {
  return {shards.mesh, exchange_of(shards, true), exchange_of(shards, false)};
}

ShardArray own_part(const ShardFrame& frame, Argument a) {
  a.type.dims[2] = own_tokens(exchange_of(frame, a.name));
  std::vector<std::string> axes = {"data", "head", "seq"};
  axes.resize(a.type.dims.size());
  return {std::move(a), axes_of(frame.mesh, std::move(axes)), false};
}

ShardArray own_integers(const ShardFrame& frame, std::string name, Dims dims) {
  std::vector<std::string> axes = {"data", "head", "seq"};
  axes.resize(3 + dims.size());
  dims.insert(dims.begin(), {1, 1, 1});
  return {{std::move(name), {Element::i32, std::move(dims)}},
          axes_of(frame.mesh, std::move(axes)),
          true};
}

Argument of_device(const ShardArray& integers) {
  const Type& type = integers.part.type;
  return {integers.part.name,
          {type.element, Dims(type.dims.begin() + 3, type.dims.end())}};
}

ShardArray of_heads(const ShardFrame& frame, std::string name, int64_t heads,
                    bool summed) {
  const Dims dims = summed ? Dims{1, 1, heads} : Dims{heads};
  std::vector<std::string> axes = {"head"};
  if (summed) axes = {"data", "seq", "head"};
  return {{std::move(name), {Element::f32, dims}},
          axes_of(frame.mesh, std::move(axes)),
          false};
}

std::vector<ShardArray> exchange_arrays(const ShardFrame& frame) {
  std::vector<ShardArray> out;
  for (const Exchange* e : {&frame.rows, &frame.columns}) {
    if (e->max_received() == 0) continue;
    out.push_back(
        own_integers(frame, std::string(e->sends), {e->max_received()}));
    if (!e->ragged()) continue;
    const int64_t seq = frame.mesh.size("seq");
    out.push_back(own_integers(frame, std::string(e->slices), {2, 2, seq}));
  }
  return out;
}

std::map<std::string_view, std::vector<int32_t>> exchange_integers(
    const ShardFrame& frame, const Shards& shards, size_t shard) {
  std::map<std::string_view, std::vector<int32_t>> out;
  for (const Exchange* e : {&frame.rows, &frame.columns}) {
    const Traffic& traffic = e == &frame.rows ? shards.q : shards.kv;
    if (e->max_received() == 0) continue;
    const int64_t seq = shards.shards[shard].seq;
    out[e->sends] = sends_of(*e, traffic, shard, seq);
    if (e->ragged()) out[e->slices] = slices_of(*e, traffic, shard, seq);
  }
  return out;
}

std::vector<Awaited> send_arrays(Writer& w, const ShardFrame& frame,
                                 std::span<const std::string_view> arrays) {
  std::vector<Awaited> out;
  for (const Exchange* e : {&frame.rows, &frame.columns}) {
    if (e->max_received() == 0) continue;
    Awaited some = {e, {}, {}};
    Values own;
    for (const std::string_view array : arrays) {
      if (&exchange_of(frame, array) != e) continue;
      some.arrays.emplace_back(array);
      own.push_back(w.argument(array));
    }
    some.coming = send_tiles(w, *e, own);
    out.push_back(std::move(some));
  }
  return out;
}

Values await_tiles(Writer& w, const std::vector<Awaited>& awaited,
                   const Values& made) {
  Values held = made;
  for (const Awaited& a : awaited) {
    for (const Coming& c : a.coming) {
      held.insert(held.end(), c.buffers.begin(), c.buffers.end());
    }
  }
  if (!made.empty() && held.size() > made.size()) held = w.barrier(held);
  auto next = held.begin() + static_cast<std::ptrdiff_t>(made.size());
  Values out(held.begin(), next);
  for (const Awaited& a : awaited) {
    for (Coming c : a.coming) {
      for (Value& buffer : c.buffers) buffer = *next++;
      const std::vector<Values> there = receive_tiles(w, *a.exchange, c);
      for (size_t p = 0; p < there.size(); ++p) {
        bind_came_parts(w, a.arrays[c.parts[p].array], there[p]);
      }
    }
  }
  return out;
}

bool comes(const ShardFrame& frame, std::string_view array) {
  return exchange_of(frame, array).max_received() > 0;
}

std::vector<int64_t> came_tokens(const ShardFrame& frame,
                                 std::string_view array) {
  return exchange_of(frame, array).came_tokens();
}

Values came_parts(Writer& w, const ShardFrame& frame, std::string_view array) {
  const size_t parts = came_tokens(frame, array).size();
  Values out;
  for (size_t i = 0; i < parts; ++i) {
    out.push_back(w.argument(came_part(array, i)));
  }
  return out;
}

void bind_came_parts(Writer& w, std::string_view array,
                     std::span<const Value> parts) {
  for (size_t i = 0; i < parts.size(); ++i) {
    w.bind(came_part(array, i), parts[i]);
  }
}

Value all_tiles(Writer& w, const ShardFrame& frame, std::string_view array) {
  Values all = {w.argument(array)};
  const Values came = came_parts(w, frame, array);
  if (came.empty()) return all.front();
  all.insert(all.end(), came.begin(), came.end());
  return w.join(all, 2);
}

void bind_all_tiles(Writer& w, const ShardFrame& frame) {
  for (const std::string_view array : kTravellers) {
    if (!w.has_argument(array)) continue;
    w.bind(std::string(array), all_tiles(w, frame, array));
  }
}

Values bring_home(Writer& w, const ShardFrame& frame,
                  std::span<const std::string_view> arrays,
                  const std::vector<Made>& made) {
  Values out(made.size());
  for (const bool keys : {false, true}) {
    std::vector<size_t> which;
    std::vector<Made> some;
    for (size_t i = 0; i < made.size(); ++i) {
      if (is_of_keys(arrays[i]) != keys) continue;
      which.push_back(i);
      some.push_back(made[i]);
    }
    // One device computes each query row; several may add to one key.
    const Values home =
        keys ? return_tiles(w, frame.columns, some, Homecoming::added)
             : return_tiles(w, frame.rows, some, Homecoming::in_place);
    for (size_t i = 0; i < which.size(); ++i) out[which[i]] = home[i];
  }
  return out;
}

std::string frame_program(std::string_view name, const ShardFrame& frame,
                          const ShardArrays& arrays, const Attend& attend) {
  std::vector<Argument> parts;
  for (const ShardArray& a : arrays.arguments) parts.push_back(a.part);
  Writer w(parts);
  for (const ShardArray& a : arrays.arguments) {
    if (!a.is_own) continue;
    w.bind(a.part.name,
           w.reshape(w.argument(a.part.name), of_device(a).type.dims));
  }
  std::vector<std::string_view> travellers;
  for (const std::string_view array : kTravellers) {
    if (w.has_argument(array)) travellers.push_back(array);
  }
  const std::vector<Made> made = attend(w, send_arrays(w, frame, travellers));
  std::vector<std::string_view> homeward;
  std::vector<Made> others;
  for (size_t i = 0; i < arrays.results.size(); ++i) {
    if (!goes_home(arrays.results[i])) continue;
    homeward.push_back(arrays.results[i].part.name);
    others.push_back(made[i]);
  }
  const Values home = bring_home(w, frame, homeward, others);
  Values results;
  auto next = home.begin();
  for (size_t i = 0; i < arrays.results.size(); ++i) {
    const Argument& to = arrays.results[i].part;
    results.push_back(goes_home(arrays.results[i])
                          ? w.convert(*next++, to.type.element)
                          : w.reshape(made[i].own, to.type.dims));
  }
  return w.module(name, results, spread_of(frame, arrays));
}

std::vector<ArraySpec> frame_specs(const ShardFrame& frame,
                                   const ShardArrays& arrays) {
  std::vector<ArraySpec> out;
  const auto add = [&](std::string name, const ShardArray& a) {
    ArraySpec spec = {std::move(name), dtype_of(a.part.type.element),
                      a.part.type.dims, a.axes};
    for (size_t d = 0; d < a.axes.size(); ++d) {
      const MeshAxis* const axis = frame.mesh.named(a.axes[d]);
      if (axis) spec.shape[d] *= axis->size;
    }
    out.push_back(std::move(spec));
  };
  for (const ShardArray& a : arrays.arguments) add("all_" + a.part.name, a);
  for (size_t i = 0; i < arrays.results.size(); ++i) {
    add(fmt::format("result {}", i), arrays.results[i]);
  }
  return out;
}

ShardProgramArrays program_arrays(const ShardFrame& frame,
                                  const ShardArrays& arrays) {
  std::vector<ArraySpec> specs = frame_specs(frame, arrays);
  const size_t arguments = arrays.arguments.size();
  ShardProgramArrays out;
  for (size_t i = 0; i < specs.size(); ++i) {
    const bool in = i < arguments;
    specs[i].name = in ? arrays.arguments[i].part.name
                       : arrays.results[i - arguments].part.name;
    (in ? out.arguments : out.results).push_back(std::move(specs[i]));
  }
  return out;
}

}  // namespace tessera::xla
