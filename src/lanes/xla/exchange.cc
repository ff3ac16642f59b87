// lanes/xla/exchange.cc: a round is a buffer of tiles and a permutation.
#include "lanes/xla/exchange.h"

#include <array>
#include <utility>

namespace tessera::xla {
namespace {

using Values = Writer::Values;

constexpr size_t kTokens = 2;  // the dimension

// The number of each device's partner `shift` further along "seq".
Writer::Hops hops_of(const Mesh& mesh, int64_t shift) {
  int64_t below = 1;  // devices between neighbours along "seq"
  int64_t seq = 1;
  for (auto axis = mesh.axes.rbegin(); axis != mesh.axes.rend(); ++axis) {
    if (axis->name == "seq") {
      seq = axis->size;
      break;
    }
    below *= axis->size;
  }
  Writer::Hops out;
  for (int64_t device = 0; device < mesh.devices(); ++device) {
    const int64_t at = device / below % seq;
    const int64_t to = (at + shift) % seq;
    out.emplace_back(device, device + (to - at) * below);
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

// Where a block of tokens begins.
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

}  // namespace

int64_t Exchange::tiles() const {
  int64_t out = own;
  for (const Round& r : rounds) out += r.capacity;
  return out;
}

Exchange exchange_of(const Mesh& mesh, const Traffic& traffic,
                     std::string sends, int64_t own, int64_t tokens) {
  Exchange out{std::move(sends), own, tokens, traffic.rounds, {}};
  for (const Round& r : out.rounds) {
    out.hops.push_back(hops_of(mesh, r.shift));
  }
  return out;
}

Value gather_tiles(Writer& w, const Exchange& e, const Value& own) {
  Values parts = {own};
  int64_t first = 0;
  const Value size = w.integer(static_cast<int32_t>(e.tokens));
  for (size_t r = 0; r < e.rounds.size(); ++r) {
    const int64_t capacity = e.rounds[r].capacity;
    if (capacity == 0) continue;
    const Value none = zeros(
        w, {own.type.element, with_tokens(own.dims(), capacity * e.tokens)});
    const Value end = w.integer(static_cast<int32_t>(capacity));
    const Value begin = w.integer(static_cast<int32_t>(first));
    const Value zero = w.integer(0);
    const Value leaving =
        w.count(zero, end, Values{none},
                [&](const Value& i, const Values& filled) {
                  const Value tile =
                      w.element(w.argument(e.sends), w.add(begin, i));
                  const Value from = w.mul(tile, size);
                  // Beyond the last tile it is the last one that is sent.
                  const Value block =
                      w.slice(own, at_token(w, own, from),
                              with_tokens(own.dims(), e.tokens));
                  const Value to = w.mul(i, size);
                  return Values{
                      w.update(filled.front(), block, at_token(w, own, to))};
                })
            .front();
    parts.push_back(w.permute(leaving, e.hops[r]));
    first += capacity;
  }
  return w.join(parts, kTokens);
}

Value return_tiles(Writer& w, const Exchange& e, const Value& all,
                   Homecoming how) {
  const Dims tile = with_tokens(all.dims(), e.tokens);
  const Dims own_dims = with_tokens(all.dims(), e.own * e.tokens);
  const Value zero = w.integer(0);
  const Value size = w.integer(static_cast<int32_t>(e.tokens));
  const Value kept = w.slice(all, at_token(w, all, zero), own_dims);
  // One tile more, for what no tile was sent for.
  const Value spare = zeros(w, {all.type.element, tile});
  Value own = w.join(std::array{kept, spare}, kTokens);
  int64_t first = 0;
  for (size_t r = 0; r < e.rounds.size(); ++r) {
    const int64_t capacity = e.rounds[r].capacity;
    if (capacity == 0) continue;
    const Value there =
        w.integer(static_cast<int32_t>((e.own + first) * e.tokens));
    const Value done = w.slice(all, at_token(w, all, there),
                               with_tokens(all.dims(), capacity * e.tokens));
    const Value home = w.permute(done, back(e.hops[r]));
    const Value end = w.integer(static_cast<int32_t>(capacity));
    const Value begin = w.integer(static_cast<int32_t>(first));
    own = w.count(zero, end, Values{own},
                  [&](const Value& i, const Values& carried) {
                    const Value number =
                        w.element(w.argument(e.sends), w.add(begin, i));
                    const Value to = w.mul(number, size);
                    const Value from = w.mul(i, size);
                    Value block = w.slice(home, at_token(w, home, from), tile);
                    if (how == Homecoming::added) {
                      const Value before =
                          w.slice(carried.front(), at_token(w, home, to), tile);
                      block = w.add(before, block);
                    }
                    return Values{w.update(carried.front(), block,
                                           at_token(w, home, to))};
                  })
              .front();
    first += capacity;
  }
  return w.slice(own, at_token(w, all, zero), own_dims);
}

}  // namespace tessera::xla
