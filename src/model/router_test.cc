// model/router_test.cc: the router in the program against the host's, pick by
// pick; its lists against the plan's, tile by tile; a clustered layer, forward
// and backward, against attention over the host's picks in plain loops.
//
// Queries and keys are integers for which float32 holds each mean, product and
// sum exactly, so the order of sums has no effect, and scores are often equal.
#include "model/router.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "model/padding.h"
#include "model/routes.h"
#include "tessera/layouts.h"
#include "tests/model_case.h"
#include "tests/random_case.h"

namespace tessera::model {
namespace {

constexpr int64_t kBatch = 2, kTokens = 40;
constexpr int64_t kHeads = 4, kKvHeads = 2, kDim = 8;
constexpr double kUnit = 27720;  // divisible by 1 to 12
constexpr double kScale = 1e-5;

struct Drawn {
  Row rows;
  Ints32 counts;
  Numbers q, k, v, dout;

  int64_t document(int64_t b, int64_t t) const {
    return rows.doc_ids[static_cast<size_t>(b * kTokens + t)];
  }
};

size_t at(int64_t b, int64_t heads, int64_t h, int64_t t) {
  return static_cast<size_t>(((b * heads + h) * kTokens + t) * kDim);
}

// Spoils values of tokens without a document, which must not be read.
void spoil(const Drawn& d, int64_t heads, Numbers& values) {
  for (int64_t b = 0; b < kBatch; ++b) {
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t t = 0; t < kTokens; ++t) {
        if (d.document(b, t) >= 0) continue;
        std::fill_n(values.data() + at(b, heads, h, t), kDim,
                    std::numeric_limits<double>::quiet_NaN());
      }
    }
  }
}

Drawn draw(std::mt19937& random) {
  Drawn out;
  std::vector<Row> rows;
  for (int64_t b = 0; b < kBatch; ++b) {
    std::vector<int> lengths;
    int left = kTokens - static_cast<int>(random() % 6);
    out.counts.push_back(left);
    while (left > 0) {
      // Row 1 is one document, so that it has full tiles.
      const int most = b == 1 ? left : 1 + static_cast<int>(random() % 30);
      lengths.push_back(std::min(left, most));
      left -= lengths.back();
    }
    rows.push_back(draw_row(random, 23, kTokens, lengths));
  }
  out.rows = joined_rows(rows);
  const auto fill = [&](int64_t heads, int least, int numbers, double unit) {
    Numbers values;
    for (int64_t i = 0; i < kBatch * heads * kTokens * kDim; ++i) {
      values.push_back(unit * (least + static_cast<int>(random() % numbers)));
    }
    spoil(out, heads, values);
    return values;
  };
  out.q = fill(kHeads, -1, 3, 1);
  out.k = fill(kKvHeads, -1, 3, kUnit);
  out.v = fill(kKvHeads, -9, 19, 0.1);
  out.dout = fill(kHeads, -9, 19, 0.1);
  return out;
}

// The picks of the host's router.
struct HostPicks {
  int64_t heads = 0, k = 0;
  std::vector<int32_t> picks;

  std::set<int32_t> of(int64_t b, int64_t head, int64_t q) const {
    const auto from =
        static_cast<size_t>(((b * heads + head) * kTokens + q) * k);
    std::set<int32_t> out;
    for (size_t i = from; i < from + static_cast<size_t>(k); ++i) {
      if (picks[i] >= 0) out.insert(picks[i]);
    }
    return out;
  }
};

class RouterInProgram : public ModelCase {
 protected:
  void set_route(const LayerRoute& route, Tile tile, const char* spec,
                 Element element) {
    route_ = route;
    model_ = small_model();
    model_.routes = {route};
    model_.layers = 1;
    spec_ = *find_layer_spec(spec);
    wide_ = element;
    const Ints32 ids(kBatch * kTokens), counts(kBatch);
    Facts present;
    present.doc_ids = ids;
    present.valid_token_counts = counts;
    auto requests = layer_requests(model_, kBatch, kTokens, kTokens, tile);
    ASSERT_TRUE(requests) << requests.error().message;
    request_ = requests->front();
    auto places =
        attention_places(model_, spec_, Dtype::f32, *requests, present);
    ASSERT_TRUE(places) << places.error().message;
    place_of_ = places->front();
    place_of_.shape.element = element;
    place_of_.shape.scale = kScale;
  }

  std::vector<xla::Argument> arguments() const {
    std::vector<xla::Argument> out;
    for (const char* name : {"q", "k", "v", "dout"}) {
      const bool keys = *name == 'k' || *name == 'v';
      out.push_back(
          {name, {wide_, {kBatch, keys ? kKvHeads : kHeads, kTokens, kDim}}});
    }
    for (xla::Argument& a : integers_of(place_of_)) out.push_back(std::move(a));
    return out;
  }

  pjrt::Loaded compile(const std::string& text) {
    auto loaded = pjrt::compile(*place_.client, *place_.device, text);
    EXPECT_TRUE(loaded) << loaded.error().message << text;
    return std::move(*loaded);
  }

  Facts facts_of_drawn(const Drawn& d) const {
    Facts out;
    out.doc_ids = d.rows.doc_ids;
    out.valid_token_counts = d.counts;
    return out;
  }

  std::vector<pjrt::Buffer> run_on(const pjrt::Loaded& program,
                                   const Drawn& d) {
    auto batch = OwnedBatch::copy(request_, facts_of_drawn(d));
    EXPECT_TRUE(batch) << batch.error().message;
    auto integers = plan_integers(place_of_, *batch);
    EXPECT_TRUE(integers) << integers.error().message;
    const std::map<std::string, const Numbers*> reals = {
        {"q", &d.q}, {"k", &d.k}, {"v", &d.v}, {"dout", &d.dout}};
    std::vector<std::vector<float>> floats;
    floats.reserve(reals.size());
    std::vector<pjrt::HostArray> arrays;
    for (const xla::Argument& a : arguments()) {
      const auto real = reals.find(a.name);
      if (real == reals.end()) {
        arrays.push_back(
            {{Dtype::i32, a.type.dims}, integers->at(a.name).data(), nullptr});
      } else if (wide_ == Element::f64) {
        arrays.push_back(
            {{Dtype::f64, a.type.dims}, real->second->data(), nullptr});
      } else {
        floats.emplace_back(real->second->begin(), real->second->end());
        arrays.push_back(
            {{Dtype::f32, a.type.dims}, floats.back().data(), nullptr});
      }
    }
    double ms = 0;
    auto found = pjrt::send_and_execute(program, arrays, ms, ms);
    EXPECT_TRUE(found) << found.error().message;
    return std::move(*found);
  }

  HostPicks host_picks(const Drawn& d) const {
    Request request = request_;
    request.masks = {*routed_mask(request_.masks.front(), route_)};
    const std::vector<float> q(d.q.begin(), d.q.end());
    const std::vector<float> k(d.k.begin(), d.k.end());
    const RouteInputs inputs = {
        .q = TensorView::bhsd(q.data(), Dtype::f32, kBatch, kHeads, kTokens,
                              kDim),
        .k = TensorView::bhsd(k.data(), Dtype::f32, kBatch, kKvHeads, kTokens,
                              kDim)};
    auto routed =
        route(request, facts_of_drawn(d), inputs, settings_of(route_));
    EXPECT_TRUE(routed) << routed.error().message;
    return {routed->heads, routed->k, routed->picks};
  }

  Ints32 ints_of(const pjrt::Buffer& b) {
    int64_t n = 1;
    for (const int64_t d : b.type().dims) n *= d;
    Ints32 out(static_cast<size_t>(n));
    EXPECT_TRUE(pjrt::to_host(b, out.data(), 4 * n));
    return out;
  }
  Numbers reals_of(const pjrt::Buffer& b) {
    int64_t n = 1;
    for (const int64_t d : b.type().dims) n *= d;
    Numbers out(static_cast<size_t>(n));
    EXPECT_TRUE(pjrt::to_host(b, out.data(), 8 * n));
    return out;
  }

  void check_picks(const Drawn& d, const HostPicks& want, const Ints32& picks,
                   int64_t q_len) const;
  void check_steps(const Drawn& d, const HostPicks& want, const Ints32& steps,
                   const Ints32& range) const;
  std::vector<Numbers> attention(const Drawn& d, const HostPicks& picks) const;

  LayerRoute route_;
  ModelConfig model_;
  LayerSpec spec_;
  Element wide_ = Element::f32;
  Request request_;
  AttentionPlace place_of_;
};

void RouterInProgram::check_picks(const Drawn& d, const HostPicks& want,
                                  const Ints32& picks, int64_t q_len) const {
  const int64_t heads = want.heads;
  for (int64_t b = 0; b < kBatch; ++b) {
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t q = 0; q < q_len; ++q) {
        const auto from =
            picks.begin() + ((b * heads + h) * q_len + q) * route_.top;
        std::set<int32_t> got(from, from + route_.top);
        got.erase(-1);
        const auto there = std::count_if(from, from + route_.top,
                                         [](int32_t n) { return n >= 0; });
        ASSERT_EQ(static_cast<size_t>(there), got.size());  // no pick twice
        if (q >= kTokens) {
          EXPECT_TRUE(got.empty());
          continue;
        }
        ASSERT_EQ(got, want.of(b, h, q))
            << "row " << b << ", head " << h << ", query " << q << ", document "
            << d.document(b, q);
      }
    }
  }
}

// Checks for each tile of the plan whether a query picks one of its blocks.
void RouterInProgram::check_steps(const Drawn& d, const HostPicks& want,
                                  const Ints32& steps,
                                  const Ints32& range) const {
  auto batch = OwnedBatch::copy(request_, facts_of_drawn(d));
  ASSERT_TRUE(batch);
  auto packed = pack_steps(*batch, false);
  ASSERT_TRUE(packed);
  const Tile tile = request_.tile;
  size_t next = 0;
  for (int64_t b = 0; b < kBatch; ++b) {
    for (int64_t h = 0; h < want.heads; ++h) {
      ASSERT_EQ(
          static_cast<size_t>(range[static_cast<size_t>(b * want.heads + h)]),
          next);
      std::vector<uint32_t> list;
      for (uint32_t i = packed->range[static_cast<size_t>(b)];
           i < packed->range[static_cast<size_t>(b) + 1]; ++i) {
        const uint32_t word = packed->steps[i].word;
        const int64_t row = word >> 18, column = word >> 4 & 0x3fff;
        uint32_t kind = word >> 2 & 3;
        bool some = kind == 0, every = true;
        for (int64_t q = row * tile.q;
             q < std::min<int64_t>(kTokens, (row + 1) * tile.q); ++q) {
          const std::set<int32_t> picks = want.of(b, h, q);
          for (int64_t key = column * tile.kv;
               key < std::min<int64_t>(kTokens, (column + 1) * tile.kv);
               ++key) {
            const auto block = static_cast<int32_t>(key / route_.block);
            (picks.contains(block) ? some : every) = picks.contains(block);
          }
        }
        if (!some) continue;
        if (kind == 2 && !every) kind = 1;
        list.push_back((word & ~15U) | kind << 2);
      }
      for (size_t i = 0; i < list.size(); ++i, ++next) {
        const bool last =
            i + 1 == list.size() || list[i + 1] >> 18 != list[i] >> 18;
        ASSERT_EQ(static_cast<uint32_t>(steps[next]),
                  list[i] | (last ? 1U : 0U))
            << "row " << b << ", head " << h << ", step " << i;
      }
    }
  }
  EXPECT_EQ(static_cast<size_t>(range.back()), next);
}

TEST_F(RouterInProgram, PicksWhatTheHostPicks) {
  struct Case {
    LayerRoute route;
    Tile tile;
  };
  std::mt19937 random(11);
  size_t number = 0;
  for (const Case& c : {Case{{3, 4, RouteRule::kv_head}, {16, 16}},
                        {{2, 12, RouteRule::query_head}, {8, 16}},
                        {{1, 8, RouteRule::kv_head}, {16, 8}},
                        {{50, 7, RouteRule::query_head}, {16, 16}},
                        {{4, 1, RouteRule::kv_head}, {8, 8}}}) {
    if (!testing::takes_case(number++, 5)) continue;
    SCOPED_TRACE(to_string(c.route));
    ASSERT_NO_FATAL_FAILURE(set_route(c.route, c.tile, "xla", Element::f32));
    Writer w(arguments(), wide_);
    auto s = picking_shape(place_of_, XlaMethod::worklist);
    ASSERT_TRUE(s) << s.error().message;
    for (const xla::Argument& a : integers_of(place_of_)) {
      w.bind(a.name.substr(place_of_.prefix.size()), w.argument(a.name));
    }
    const Value q =
        grown(w, w.argument("q"), {s->batch, s->heads, s->q_len, kDim});
    const Value k =
        grown(w, w.argument("k"), {s->batch, s->kv_heads, s->kv_len, kDim});
    const Picked picked = write_router(w, *s, route_, q, k);
    const PickedSteps chosen = write_picked_steps(
        w, *s, route_, picked, {w.argument("steps"), w.argument("range")});
    const pjrt::Loaded program =
        compile(w.module("router", {picked.picks, chosen.steps, chosen.range}));
    for (int i = 0; i < 6; ++i) {  // one program for all batches
      const Drawn d = draw(random);
      const HostPicks want = host_picks(d);
      const std::vector<pjrt::Buffer> got = run_on(program, d);
      ASSERT_NO_FATAL_FAILURE(check_picks(d, want, ints_of(got[0]), s->q_len));
      ASSERT_NO_FATAL_FAILURE(
          check_steps(d, want, ints_of(got[1]), ints_of(got[2])));
    }
  }
}

// The output and gradients for fixed picks, over pairs that the mask allows.
std::vector<Numbers> RouterInProgram::attention(const Drawn& d,
                                                const HostPicks& picks) const {
  Numbers out(d.q.size()), dq(d.q.size()), dk(d.k.size()), dv(d.v.size());
  const auto dot = [](const double* a, const double* b) {
    double sum = 0;
    for (int64_t i = 0; i < kDim; ++i) sum += a[i] * b[i];
    return sum;
  };
  for (int64_t b = 0; b < kBatch; ++b) {
    for (int64_t h = 0; h < kHeads; ++h) {
      const int64_t kv = h / (kHeads / kKvHeads);
      const int64_t head = picks.heads == kHeads ? h : kv;
      for (int64_t t = 0; t < kTokens; ++t) {
        const std::set<int32_t> picked = picks.of(b, head, t);
        std::vector<int64_t> keys;
        for (int64_t j = 0; j <= t; ++j) {
          if (d.document(b, t) >= 0 && d.document(b, j) == d.document(b, t) &&
              picked.contains(static_cast<int32_t>(j / route_.block))) {
            keys.push_back(j);
          }
        }
        if (keys.empty()) continue;
        const size_t q_at = at(b, kHeads, h, t);
        Numbers p;
        double sum = 0;
        for (const int64_t j : keys) {
          p.push_back(
              std::exp(kScale * dot(&d.q[q_at], &d.k[at(b, kKvHeads, kv, j)])));
          sum += p.back();
        }
        for (size_t i = 0; i < keys.size(); ++i) {
          p[i] /= sum;
          const size_t k_at = at(b, kKvHeads, kv, keys[i]);
          for (int64_t n = 0; n < kDim; ++n) {
            out[q_at + n] += p[i] * d.v[k_at + n];
            dv[k_at + n] += p[i] * d.dout[q_at + n];
          }
        }
        const double delta = dot(&out[q_at], &d.dout[q_at]);
        for (size_t i = 0; i < keys.size(); ++i) {
          const size_t k_at = at(b, kKvHeads, kv, keys[i]);
          const double ds =
              kScale * p[i] * (dot(&d.dout[q_at], &d.v[k_at]) - delta);
          for (int64_t n = 0; n < kDim; ++n) {
            dq[q_at + n] += ds * d.k[k_at + n];
            dk[k_at + n] += ds * d.q[q_at + n];
          }
        }
      }
    }
  }
  return {out, dq, dk, dv};
}

// Checks that no gradient goes through the router: it would be in dq and dk.
TEST_F(RouterInProgram, ALayerIsAttentionOverFixedPicks) {
  std::mt19937 random(12);
  size_t number = 0;
  for (const char* spec : {"xla", "reference"}) {
    for (const LayerRoute& route : {LayerRoute{3, 4, RouteRule::kv_head},
                                    LayerRoute{2, 12, RouteRule::query_head}}) {
      if (!testing::takes_case(number++, 4)) continue;
      SCOPED_TRACE(std::string(spec) + ", " + to_string(route));
      ASSERT_NO_FATAL_FAILURE(set_route(route, {8, 16}, spec, Element::f64));
      Writer w(arguments(), wide_);
      const Site site = {w, wide_};
      auto layer = make_layer(spec_, Slot::attention, {model_, place_of_});
      ASSERT_TRUE(layer) << layer.error().message;
      const Passed there = (*layer)->forward(
          site, {}, {w.argument("q"), w.argument("k"), w.argument("v")});
      const Returned back =
          (*layer)->backward(site, {}, there.saved, {w.argument("dout")});
      Values results = {there.out[0]};
      results.insert(results.end(), back.inputs.begin(), back.inputs.end());
      results.push_back(there.out[1]);
      const pjrt::Loaded program = compile(w.module("layer", results));
      for (int i = 0; i < 3; ++i) {
        const Drawn d = draw(random);
        const std::vector<pjrt::Buffer> made = run_on(program, d);
        std::vector<Numbers> got;
        for (size_t n = 0; n < 4; ++n) got.push_back(reals_of(made[n]));
        const HostPicks picks = host_picks(d);
        const auto of_picks = [&](const std::vector<Numbers>& moved) {
          Drawn near = d;
          near.q = moved[0];
          near.k = moved[1];
          near.v = moved[2];
          near.dout = moved[3];
          return attention(near, picks);
        };
        const Expected want =
            expected_of(of_picks, {d.q, d.k, d.v, d.dout}, kUlp);
        ASSERT_NO_FATAL_FAILURE(expect_same(want, got));
      }
    }
  }
}

TEST(ClusteredLayers, HaveARequestOfTheirOwn) {
  ModelConfig m = small_model();
  m.routes = {{}, {4, 16}};
  auto requests = layer_requests(m, 1, 64, 64, {32, 32});
  ASSERT_TRUE(requests);
  EXPECT_EQ(requests->size(), 2U);
}

TEST(ClusteredLayers, AreRefusedWhereNobodyPicks) {
  TrainOptions o;
  o.model = small_model();
  o.model.routes = {{}, {4, 16}};
  o.model.head_dim = 64;
  o.spec = *find_layer_spec("tpu");
  o.tokens = 256;
  o.tile = {256, 256};
  auto text = Trainer::program_text(o);
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().message,
            "[train] clustered layers are of the specs xla, cpu and reference, "
            "found routed(4, 16) by kv-head for tpu");
}

}  // namespace
}  // namespace tessera::model
