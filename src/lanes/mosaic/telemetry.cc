// lanes/mosaic/telemetry.cc: the forward kernel without values: for each query
// the log-sum-exp and the entropy of its probabilities.
//
// With m, l, c and P' as in forward.cc, d = c (m_old - m), and D' = c S' - c m,
// the distance from the maximum, all in powers of 2:
//
//   t  = t 2^d + (l 2^d) d + sum_k P' D'
//
// At the row's end lse = ln 2 c m + ln l and entropy = ln l - ln 2 t / l; if l
// is 0, no key was legal: lse is -inf and entropy 0. Terms of t are never
// positive, so none cancel; a weight of 0 adds 0 to t, whatever its distance.
//
// The kernel knows neither first keys nor sink logits. For the list of all
// legal pairs it gives each row's sums, for the list of the pairs whose mass is
// asked for their sums, and the host joins these and the logits
// (telemetry_rows.h). One program must serve both lists, so bitmaps say which
// pairs are legal, and ids are not read: vetoed tokens are in no legal pair.
#include "lanes/mosaic/telemetry.h"

#include "lanes/mosaic/pass_loop.h"

namespace tessera::mosaic {
namespace {

class Telemetry : public PassLoop {
 public:
  explicit Telemetry(const KernelShape& shape)
      : PassLoop(shape, telemetry_arguments(shape),
                 {{"k", "k_ring", shape.head_dim}}) {}

 private:
  Value ln2() { return w_.real(static_cast<float>(kLn2)); }
  Value zero_like(const Value& a) { return w_.splat(w_.real(0), a.type.shape); }
  // weight * distance, and 0 where the weight is 0.
  Value term(const Value& weight, const Value& distance) {
    const Value zero = zero_like(weight);
    const Value none = w_.compare(Compare::equal, weight, zero);
    const Value product = w_.mul(weight, distance);
    return w_.select(none, zero, product);
  }
  void absorb(const Value& pass, const Place& p, const Strip& strip) override;
  void finish(const char* region, const Place& p,
              const Value& rows_done) override;
  void wait_out();
  void wait_last(const Value& /*rows_done*/) override { wait_out(); }
};

void Telemetry::absorb(const Value& /*pass*/, const Place& p,
                       const Strip& strip) {
  const std::vector<int64_t> line = {kSublanes, queries_};
  const std::vector<int64_t> tile = tile_shape();
  const Value first = is_true(is_first(word(p.at)));
  const Value c = unit_log2();
  const Value old_most = most_before(first, strip);
  const Value old_sum = sum_before(first, "sum", strip);
  const Value old_spread = sum_before(first, "spread", strip);
  const Value most = w_.max(old_most, load_of("scores_max", strip, kSublanes));
  store_of(most, "most", strip);
  const Value fallen = w_.sub(old_most, most);
  const Value shift = w_.mul(fallen, w_.splat(c, line));
  const Value shrink = w_.exp2(shift);

  const Value one_most = w_.first_row(most);
  const Value scaled_most = w_.mul(one_most, w_.splat(c, {1, queries_}));
  const Value scores = load_of("scores", strip, keys_);
  const Value scaled = w_.mul(scores, w_.splat(c, tile));
  const Value distance = w_.sub(scaled, whole(scaled_most, tile));
  const Value p_tile = w_.exp2(distance);

  const Value kept_sum = w_.mul(old_sum, shrink);
  store_of(w_.add(kept_sum, parts_of(p_tile)), "sum", strip);
  const Value shrunk = w_.mul(old_spread, shrink);
  const Value kept_spread = w_.add(shrunk, term(kept_sum, shift));
  store_of(w_.add(kept_spread, parts_of(term(p_tile, distance))), "spread",
           strip);
}

void Telemetry::wait_out() {
  const Value& done = w_.argument("out_copies");
  w_.wait_copy(done, w_.argument("lse_tile"));
  w_.wait_copy(done, w_.argument("entropy_tile"));
}

void Telemetry::finish(const char* region, const Place& p,
                       const Value& rows_done) {
  const Writer::Region named(w_, region);
  w_.if_then(is_true(rows_done), [&] { wait_out(); });
  const std::vector<int64_t> line = {1, s_.block_q};
  for (int64_t h = 0; h < heads_; ++h) {
    const Value sum = sum_of_parts("sum", h);
    const Value spread = sum_of_parts("spread", h);
    const Value log_sum = w_.log(sum);
    const Value most = w_.first_row(load_of("most", h, kSublanes));
    const Value scaled = w_.mul(most, w_.splat(unit_natural(), line));
    store_line(w_.add(scaled, log_sum), "lse_tile", h);
    const Value mean_power = w_.div(spread, sum);
    const Value mean = w_.mul(mean_power, w_.splat(ln2(), line));
    const Value zero = zero_like(sum);
    const Value no_key = w_.compare(Compare::equal, sum, zero);
    store_line(w_.select(no_key, zero, w_.sub(log_sum, mean)), "entropy_tile",
               h);
  }
  const Value query = times(row_of(word(p.at)), s_.block_q);
  const Value head = head_at(p);
  send_lines("lse_tile", "lse", head, query);
  send_lines("entropy_tile", "entropy", head, query);
}

}  // namespace

std::vector<Argument> telemetry_arguments(const KernelShape& s) {
  const int64_t ring = ring_size(s);
  const int64_t keys = s.block_kv * s.tiles_per_pass;
  const int64_t heads = s.heads_per_pass;
  const int64_t lines = heads * kSublanes;
  const Element own = element_of(s);
  constexpr Element kF32 = Element::f32;
  std::vector<Argument> out = scalar_arguments(s);
  auto add = [&](std::vector<Argument> more) {
    out.insert(out.end(), more.begin(), more.end());
  };
  add({of_tokens(s, "q", own, s.heads, s.q_len, s.head_dim),
       of_tokens(s, "k", own, s.kv_heads, s.kv_len, s.head_dim)});
  add(bit_arguments(s));
  add({in_hbm("lse", kF32, {s.batch, s.heads, 1, s.q_len}),
       in_hbm("entropy", kF32, {s.batch, s.heads, 1, s.q_len}),
       // Scratch.
       in_vmem("q_ring", own, tiles_of(s, ring * heads, s.block_q, s.head_dim)),
       in_vmem("k_ring", own,
               tiles_of(s, ring * s.kv_heads_per_pass(), keys, s.head_dim)),
       in_vmem("scores", kF32, {heads * keys, s.block_q}),
       in_vmem("scores_max", kF32, {lines, s.block_q}),
       in_vmem("most", kF32, {lines, s.block_q}),    // m
       in_vmem("sum", kF32, {lines, s.block_q}),     // l, in eight parts
       in_vmem("spread", kF32, {lines, s.block_q}),  // t, likewise
       in_vmem("lse_tile", kF32, {heads, 1, s.block_q}),
       in_vmem("entropy_tile", kF32, {heads, 1, s.block_q}),
       semaphores("q_copies", {ring}), semaphores("kv_copies", {ring}),
       semaphores("out_copies", {})});
  add(bit_scratch(s, ring));
  add(page_scratch(s));
  return out;
}

std::string telemetry_kernel(const KernelShape& shape) {
  return Telemetry(shape).write("tessera_sinks");
}

}  // namespace tessera::mosaic
