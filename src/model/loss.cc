// model/loss.cc: the mean cross-entropy of the tokens that count, and its
// gradients, in chunks of rows, so that few logits exist at once.
//
// For a row h and its target t, z = h E^T, or c tanh(h E^T / c) with a cap c:
//   loss = log sum_j exp(z_j) - z_t,   dz_j = softmax(z)_j - [j = t]
// dz is multiplied by the cap's slope and divided by the number of tokens that
// count. Devices with parts of E share the maximum, both sums and finally dh.
#include "model/loss.h"

#include <algorithm>
#include <array>

#include "base/integers.h"
#include "model/mesh.h"
#include "model/padding.h"

namespace tessera::model {
namespace {

// Rows are taken `some` at a time, `chunks` times; zeros pad the last chunk.
struct Chunks {
  int64_t chunks = 1;
  int64_t some = 0;
};
// As few chunks as the limit allows, of about equal length, and a multiple of 8
// rows, the size of a register, where the limit allows it.
Chunks chunks_of(int64_t rows, int64_t vocab, int64_t max_logits) {
  int64_t limit = std::max<int64_t>(max_logits / vocab, 1);
  if (rows <= limit) return {1, rows};
  const int64_t unit = limit >= 8 ? 8 : 1;
  limit -= limit % unit;
  const int64_t chunks = ceil_div(rows, limit);
  return {chunks, round_up(ceil_div(rows, chunks), unit)};
}

// The maximum over all ids from each device's maximum over its own ids.
Value most_of_all(Writer& w, const VocabPart& part, const Value& own) {
  if (part.partners.empty()) return own;
  const Value row = w.reshape(own, {1, own.dims()[0]});
  return w.reduce_max(w.gather(row, 0, part.partners), {0});
}

}  // namespace

Logits write_logits(const Site& at, const ModelConfig& m, const Value& h,
                    const Value& head) {
  Writer& w = at.w;
  const Value z = at.times(h, head);
  if (m.final_softcap <= 0) return {z, {}};
  const Value cap = w.real(m.final_softcap, z.dims());
  const Value bent = w.tanh(w.div(z, cap));
  return {w.mul(bent, cap), bent};
}

Loss write_loss(const Site& at, const ModelConfig& m, const Value& hidden,
                const Value& head, const VocabPart& part, const Value& targets,
                const Value& counts, const Value& total, int64_t max_logits) {
  Writer& w = at.w;
  const int64_t rows = hidden.dims()[0], vocab = head.dims()[0];
  const Chunks parts = chunks_of(rows, vocab, max_logits);
  const int64_t chunks = parts.chunks, some = parts.some;
  const Dims wide = {some, vocab}, one = {some};
  const Value all = grown(w, hidden, {chunks * some, hidden.dims()[1]});
  const Value all_targets = grown(w, targets, {chunks * some});
  const Value counted = grown(w, w.convert(counts, w.wide()), {chunks * some});
  const Value over = w.max(total, w.real(1));
  const Value zero = w.integer(0);
  const Values start = {w.real(0), w.real(0, all.dims()),
                        w.real(0, head.dims())};
  const auto chunk = [&](const Value& i, const Values& before) {
    const Value first = w.mul(i, w.integer(static_cast<int32_t>(some)));
    const Value h =
        w.slice(all, std::array{first, zero}, {some, all.dims()[1]});
    Value target = w.slice(all_targets, std::array{first}, one);
    if (!part.partners.empty()) {
      target = w.sub(target, w.broadcast(part.first, one, {}));
    }
    const Value counting = w.slice(counted, std::array{first}, one);
    const auto [z, bent] = write_logits(at, m, h, head);
    const Value most = most_of_all(w, part, w.reduce_max(z, {1}));
    const Value e = w.exp(w.sub(z, w.broadcast(most, wide, {0})));
    const Value is_target = w.compare(Compare::equal, w.iota(wide, 1),
                                      w.broadcast(target, wide, {0}));
    const Value nothing = w.real(0, wide);
    const Values sums =
        sum_over_devices(w, part.partners,
                         {w.reduce_sum(e, {1}),
                          w.reduce_sum(w.select(is_target, z, nothing), {1})});
    const Value &sum = sums[0], &at_target = sums[1];
    const Value each = w.sub(w.add(most, w.log(sum)), at_target);
    const Value weight = w.div(counting, w.broadcast(over, one, {}));
    // A row that does not count adds 0, even if its loss is not finite.
    const Value counts_here =
        w.compare(Compare::not_equal, counting, w.real(0, one));
    const Value share =
        w.select(counts_here, w.mul(each, weight), w.real(0, one));

    Value dz = w.sub(w.div(e, w.broadcast(sum, wide, {0})),
                     w.convert(is_target, w.wide()));
    if (m.final_softcap > 0) {
      dz = w.mul(dz, w.sub(w.real(1, wide), w.mul(bent, bent)));
    }
    dz = w.select(w.broadcast(counts_here, wide, {0}),
                  w.mul(dz, w.broadcast(weight, wide, {0})), nothing);
    const Value cast = w.convert(dz, at.products);
    const Value dh =
        w.dot(cast, w.convert(head, at.products), {{}, {}, {1}, {0}});
    const Value dhead =
        w.dot(cast, w.convert(h, at.products), {{}, {}, {0}, {0}});
    return Values{w.add(before[0], w.reduce_sum(share, {0})),
                  w.update(before[1], dh, std::array{first, zero}),
                  w.add(before[2], dhead)};
  };
  Values out;
  if (chunks == 1) {
    out = chunk(zero, start);
  } else {
    const Value end = w.integer(static_cast<int32_t>(chunks));
    out = w.count(zero, end, start, chunk);
  }
  const Values dhidden = {shrunk(w, out[1], hidden.dims())};
  return {out[0], sum_over_devices(w, part.partners, dhidden).front(), out[2]};
}

}  // namespace tessera::model
