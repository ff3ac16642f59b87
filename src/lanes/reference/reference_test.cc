// lanes/reference/reference_test.cc: checks the reference with naive formulas
// in long double, finite differences, and properties of attention.
#include "lanes/reference/reference.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace tessera::reference {
namespace {

using Doubles = std::vector<double>;
using Wide = std::vector<long double>;

constexpr double kEps = std::numeric_limits<double>::epsilon();
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// ---- Masks, each with a second definition of its meaning. ----

struct Token {
  int64_t pos, key;
  int q_id, k_id;                    // document ids
  int q_run, k_run;                  // segments
  int k_rank_in_doc, k_rank_in_run;  // rank of the key
  int64_t prefix;
  std::set<int> picks;
};

struct Rule {
  std::string text;
  std::function<bool(const Token&)> holds;
  bool ids = false;  // negative ids veto
};

bool same_doc(const Token& t) { return t.q_id == t.k_id; }
bool same_run(const Token& t) { return t.q_run == t.k_run; }
bool is_causal(const Token& t) { return t.key <= t.pos; }
bool near(const Token& t, int64_t left, int64_t right) {
  return t.key >= t.pos - left && t.key <= t.pos + right;
}
bool in_chunk(const Token& t, double n) {
  return std::floor(static_cast<double>(t.pos) / n) ==
         std::floor(static_cast<double>(t.key) / n);
}
bool picked(const Token& t, int n) {
  return t.picks.count(static_cast<int>(t.key) / n) > 0;
}

const std::vector<Rule>& rules() {
  static const std::vector<Rule> all = {
      {"full", [](const Token&) { return true; }},
      {"!full", [](const Token&) { return false; }},
      {"causal", is_causal},
      {"!causal", [](const Token& t) { return t.key > t.pos; }},
      {"window(2, 1)", [](const Token& t) { return near(t, 2, 1); }},
      {"!window(1, 1)", [](const Token& t) { return !near(t, 1, 1); }},
      {"window(-1, 0)", is_causal},
      {"chunk(3)", [](const Token& t) { return in_chunk(t, 3); }},
      {"causal | prefix",
       [](const Token& t) { return is_causal(t) || t.key < t.prefix; }},
      {"sink(2) | window(1, 0)",
       [](const Token& t) { return t.key < 2 || near(t, 1, 0); }},
      {"causal & documents",
       [](const Token& t) { return is_causal(t) && same_doc(t); }, true},
      {"full | documents", [](const Token&) { return true; }, true},
      {"!documents", [](const Token& t) { return !same_doc(t); }, true},
      {"causal & segments",
       [](const Token& t) { return is_causal(t) && same_run(t); }, true},
      {"documents & (sink(1) | window(1, 0))",
       [](const Token& t) {
         return same_doc(t) && (t.k_rank_in_doc < 1 || near(t, 1, 0));
       },
       true},
      {"segments & sink(1)",
       [](const Token& t) { return same_run(t) && t.k_rank_in_run < 1; }, true},
      {"blocks(8)", [](const Token& t) { return picked(t, 8); }},
      {"causal & !blocks(8)",
       [](const Token& t) { return is_causal(t) && !picked(t, 8); }},
      {"causal & routed(2, 8)",
       [](const Token& t) { return is_causal(t) && picked(t, 8); }},
  };
  return all;
}

// ---- A case: a request, its facts, its tensors and its legal pairs. ----

struct Case {
  Request request;
  AttentionShape shape;
  Doubles q, k, v, sink, dout, dlse;
  bool with_sink = false;
  std::vector<std::vector<int32_t>> arrays;  // what the facts point to
  Facts facts;
  int64_t plan_heads = 1;
  std::vector<uint8_t> legal;  // [batch, heads, q_len, kv_len]
  std::string name;

  AttentionInputs inputs() const {
    AttentionInputs in{q, k, v, std::nullopt};
    if (with_sink) in.sink_logits = sink;
    return in;
  }
  size_t row(int64_t b, int64_t h, int64_t i) const {
    return static_cast<size_t>((b * shape.heads + h) * request.q_len + i);
  }
  size_t kv_row(int64_t b, int64_t h, int64_t j) const {
    const int64_t kv = h / (shape.heads / shape.kv_heads);
    return static_cast<size_t>((b * shape.kv_heads + kv) * request.kv_len + j);
  }
  bool sees(int64_t b, int64_t h, int64_t i, int64_t j) const {
    return legal[row(b, h, i) * static_cast<size_t>(request.kv_len) +
                 static_cast<size_t>(j)] != 0;
  }
  bool sees_any(int64_t b, int64_t h, int64_t i) const {
    for (int64_t j = 0; j < request.kv_len; ++j) {
      if (sees(b, h, i, j)) return true;
    }
    return false;
  }
  double scale() const {
    return shape.scale.value_or(1 /
                                std::sqrt(static_cast<double>(shape.head_dim)));
  }
  AttentionOutputs forward() const {
    auto r = reference_forward(request, facts, shape, inputs());
    EXPECT_TRUE(r.ok()) << r.error().message;
    return r.ok() ? *r : AttentionOutputs{};
  }
  AttentionGradients backward() const {
    auto r = reference_backward(request, facts, shape, inputs(), dout, dlse);
    EXPECT_TRUE(r.ok()) << r.error().message;
    return r.ok() ? *r : AttentionGradients{};
  }
};

using Random = std::mt19937_64;

int64_t between(Random& random, int64_t least, int64_t most) {
  return std::uniform_int_distribution<int64_t>(least, most)(random);
}

Doubles normals(Random& random, int64_t n, double size) {
  std::normal_distribution<double> normal(0, size);
  Doubles r(static_cast<size_t>(n));
  for (double& x : r) x = normal(random);
  return r;
}

void fill_tensors(Random& random, Case& c, double size) {
  const AttentionShape& s = c.shape;
  const Request& r = c.request;
  const int64_t queries = r.batch * s.heads * r.q_len;
  const int64_t keys = r.batch * s.kv_heads * r.kv_len;
  c.q = normals(random, queries * s.head_dim, size);
  c.k = normals(random, keys * s.head_dim, size);
  c.v = normals(random, keys * s.v_head_dim, 1);
  c.sink = normals(random, s.heads, 2);
  c.dout = normals(random, queries * s.v_head_dim, 1);
  c.dlse = normals(random, queries, 1);
}

void fill_facts(Random& random, Case& c) {
  const Request& r = c.request;
  c.arrays.clear();
  c.arrays.reserve(8);  // the facts point into it
  auto make = [&](int64_t n, int64_t least, int64_t most) -> Ints {
    std::vector<int32_t> a(static_cast<size_t>(n));
    for (int32_t& x : a) x = static_cast<int32_t>(between(random, least, most));
    c.arrays.push_back(std::move(a));
    return c.arrays.back();
  };
  const auto& masks = r.masks;
  auto any = [&](auto names) {
    return std::any_of(masks.begin(), masks.end(),
                       [&](const Mask& m) { return names(m.names); });
  };
  const bool segments = any([](const Names& n) { return n.segments; });
  const bool ids = segments || any([](const Names& n) { return n.documents; });
  if (ids) {
    c.facts.doc_ids = make(r.batch * r.kv_len, -1, 2);
    if (!segments && (r.q_len > r.kv_len || between(random, 0, 1))) {
      c.facts.q_doc_ids = make(r.batch * r.q_len, -1, 2);
    }
  }
  if (between(random, 0, 2) == 0) {
    c.facts.valid_token_counts = make(r.batch, 0, r.kv_len);
  }
  if (!ids && between(random, 0, 2) == 0) {
    c.facts.q_offsets = make(r.batch, -3, r.kv_len);
  }
  if (any([](const Names& n) { return n.prefix; })) {
    c.facts.prefix_lengths = make(r.batch, 0, r.kv_len);
    if (c.facts.valid_token_counts) {
      for (size_t b = 0; b < c.arrays.back().size(); ++b) {
        c.arrays.back()[b] =
            std::min(c.arrays.back()[b], (*c.facts.valid_token_counts)[b]);
      }
    }
  }
  if (any([](const Names& n) { return n.picks; })) {
    const int64_t choices[] = {1, c.shape.kv_heads, c.shape.heads};
    const int64_t heads = choices[between(random, 0, 2)];
    c.plan_heads = std::max(c.plan_heads, heads);
    c.facts.picks = Picks{
        make(r.batch * heads * r.q_len * 2, -1, (r.kv_len - 1) / 8), heads, 2};
  }
}

// Legality a second time, by definition in plain loops, from the raw facts.
void fill_legal(Case& c, const std::vector<Rule>& masks) {
  const Request& r = c.request;
  const int64_t heads = c.shape.heads;
  const auto groups = static_cast<int64_t>(masks.size());
  bool any_ids = false;
  for (const Rule& m : masks) any_ids |= m.ids;
  c.legal.assign(static_cast<size_t>(r.batch * heads * r.q_len * r.kv_len), 0);
  size_t at = 0;
  for (int64_t b = 0; b < r.batch; ++b) {
    const auto bb = static_cast<size_t>(b);
    std::vector<int> id, run, doc_rank, run_rank;
    for (int64_t j = 0; any_ids && j < r.kv_len; ++j) {
      id.push_back((*c.facts.doc_ids)[static_cast<size_t>(b * r.kv_len + j)]);
      const bool same = j > 0 && id[id.size() - 2] == id.back();
      run.push_back(j == 0 ? 0 : run.back() + (same ? 0 : 1));
      run_rank.push_back(same ? run_rank.back() + 1 : 0);
      doc_rank.push_back(
          static_cast<int>(std::count(id.begin(), id.end() - 1, id.back())));
    }
    const int64_t offset =
        c.facts.q_offsets ? (*c.facts.q_offsets)[bb] : r.kv_len - r.q_len;
    for (int64_t h = 0; h < heads; ++h) {
      const Rule& mask = masks[static_cast<size_t>(h * groups / heads)];
      for (int64_t i = 0; i < r.q_len; ++i) {
        Token t{};
        t.pos = i + offset;
        const auto pos = static_cast<size_t>(t.pos);
        const bool inside = t.pos >= 0 && t.pos < r.kv_len;
        if (any_ids) {
          t.q_run = inside ? run[pos] : -1;
          t.q_id =
              c.facts.q_doc_ids
                  ? (*c.facts.q_doc_ids)[static_cast<size_t>(b * r.q_len + i)]
                  : (inside ? id[pos] : -9);
        }
        if (c.facts.prefix_lengths) t.prefix = (*c.facts.prefix_lengths)[bb];
        if (c.facts.picks) {
          const int64_t pick_heads = c.facts.picks->heads;
          const int64_t ph = h * pick_heads / heads;
          for (int64_t n = 0; n < c.facts.picks->k; ++n) {
            const int64_t slot =
                ((b * pick_heads + ph) * r.q_len + i) * c.facts.picks->k + n;
            t.picks.insert(c.facts.picks->blocks[static_cast<size_t>(slot)]);
          }
        }
        for (int64_t j = 0; j < r.kv_len; ++j, ++at) {
          const auto jj = static_cast<size_t>(j);
          t.key = j;
          if (any_ids) {
            t.k_id = id[jj];
            t.k_run = run[jj];
            t.k_rank_in_doc = doc_rank[jj];
            t.k_rank_in_run = run_rank[jj];
          }
          bool ok = mask.holds(t);
          if (c.facts.valid_token_counts) {
            const int64_t count = (*c.facts.valid_token_counts)[bb];
            ok = ok && j < count && t.pos < count;
          }
          if (mask.ids) ok = ok && t.q_id >= 0 && t.k_id >= 0;
          c.legal[at] = ok;
        }
      }
    }
  }
}

Case make_case(uint64_t seed, const std::vector<Rule>& masks) {
  Random random(seed);
  Case c;
  const auto groups = static_cast<int64_t>(masks.size());
  const int64_t group = between(random, 1, 3);
  c.shape.kv_heads = between(random, 1, 2) * groups;
  c.shape.heads = c.shape.kv_heads * group;
  c.shape.head_dim = between(random, 1, 11);
  c.shape.v_head_dim = between(random, 1, 11);
  const double caps[] = {0, 0, 15, 30, 50, 1};
  c.shape.softcap = caps[between(random, 0, 5)];
  if (between(random, 0, 1)) c.shape.scale = 0.4;
  bool any_ids = false;
  for (const Rule& m : masks) {
    auto mask = parse_mask(m.text);
    EXPECT_TRUE(mask.ok()) << mask.error().message;
    c.request.masks.push_back(*mask);
    c.name += m.text + "; ";
    any_ids |= m.ids;
  }
  c.plan_heads = groups;
  c.request.batch = between(random, 1, 2);
  c.request.kv_len = between(random, 1, 20);
  c.request.q_len = between(random, 1, any_ids ? c.request.kv_len : 7);
  c.with_sink = between(random, 0, 1);
  // Scores of about the softcap and above, or of order 1 to 10.
  const double logit =
      c.shape.softcap > 0 ? 1.5 * c.shape.softcap : (seed % 2 ? 1 : 10);
  fill_tensors(random, c,
               std::sqrt(logit / (c.scale() * std::sqrt(static_cast<double>(
                                                  c.shape.head_dim)))));
  fill_facts(random, c);
  fill_legal(c, masks);
  c.name += "seed " + std::to_string(seed) + ", softcap " +
            std::to_string(c.shape.softcap) + (c.with_sink ? ", sink" : "");
  return c;
}

// Every rule alone, then pairs of rules whose picks and ids do not conflict.
std::vector<std::vector<Rule>> mask_sets() {
  std::vector<std::vector<Rule>> sets;
  for (const Rule& r : rules()) sets.push_back({r});
  auto rule = [](size_t i) { return rules()[i]; };
  sets.push_back({rule(2), rule(4)});
  sets.push_back({rule(0), rule(10)});
  sets.push_back({rule(1), rule(16)});
  return sets;
}

// ---- Check 1: naive formulas, one head, long double. ----

struct Head {
  int64_t n_q, n_k, d, dv;
  long double scale, cap;
  const double *q, *k, *v;
  const double* sink;  // null: none
  const uint8_t* legal;
  const double *dout, *dlse;
};

struct HeadResult {
  Wide out, lse, dq, dk, dv;
  long double dsink = 0;
};

HeadResult naive(const Head& x) {
  HeadResult r;
  r.dq.resize(static_cast<size_t>(x.n_q * x.d));
  r.dk.resize(static_cast<size_t>(x.n_k * x.d));
  r.dv.resize(static_cast<size_t>(x.n_k * x.dv));
  const auto n = static_cast<size_t>(x.n_k);
  for (int64_t i = 0; i < x.n_q; ++i) {
    Wide score(n), cap(n), p(n + 1);  // p[n] is the sink's
    long double top = x.sink ? static_cast<long double>(*x.sink) : -1e4000L;
    auto ok = [&](size_t j) {
      return x.legal[static_cast<size_t>(i) * n + j] != 0;
    };
    for (size_t j = 0; j < n; ++j) {
      for (int64_t c = 0; c < x.d; ++c) {
        score[j] += static_cast<long double>(x.q[i * x.d + c]) *
                    x.k[static_cast<int64_t>(j) * x.d + c];
      }
      score[j] *= x.scale;
      cap[j] = x.cap > 0 ? x.cap * std::tanh(score[j] / x.cap) : score[j];
      if (ok(j)) top = std::max(top, cap[j]);
    }
    long double sum = 0;
    for (size_t j = 0; j < n; ++j) {
      if (ok(j)) sum += p[j] = std::exp(cap[j] - top);
    }
    if (x.sink) sum += p[n] = std::exp(*x.sink - top);
    r.lse.push_back(sum > 0 ? top + std::log(sum)
                            : -std::numeric_limits<long double>::infinity());
    for (long double& e : p) e = sum > 0 ? e / sum : 0;
    for (int64_t c = 0; c < x.dv; ++c) {
      long double o = 0;
      for (size_t j = 0; j < n; ++j) {
        o += p[j] * x.v[static_cast<int64_t>(j) * x.dv + c];
      }
      r.out.push_back(o);
    }
    // The full Jacobian of the softmax, over keys and sink.
    Wide dp(n + 1), ds(n + 1);
    for (size_t j = 0; j < n; ++j) {
      for (int64_t c = 0; c < x.dv; ++c) {
        const double g = x.dout[i * x.dv + c];
        dp[j] += static_cast<long double>(g) *
                 x.v[static_cast<int64_t>(j) * x.dv + c];
        r.dv[j * static_cast<size_t>(x.dv) + static_cast<size_t>(c)] +=
            p[j] * g;
      }
    }
    for (size_t j = 0; j <= n; ++j) {
      for (size_t t = 0; t <= n; ++t) {
        ds[j] += dp[t] * p[t] * ((j == t ? 1.0L : 0.0L) - p[j]);
      }
      ds[j] += p[j] * x.dlse[i];
    }
    r.dsink += ds[n];
    for (size_t j = 0; j < n; ++j) {
      if (x.cap > 0) {
        const long double t = std::tanh(score[j] / x.cap);
        ds[j] *= (1 - t) * (1 + t);
      }
      for (int64_t c = 0; c < x.d; ++c) {
        const auto qc = static_cast<size_t>(i * x.d + c);
        const size_t kc = j * static_cast<size_t>(x.d) + static_cast<size_t>(c);
        r.dq[qc] += x.scale * ds[j] * x.k[kc];
        r.dk[kc] += x.scale * ds[j] * x.q[qc];
      }
    }
  }
  return r;
}

double max_abs(const Doubles& a) {
  double m = 0;
  for (const double x : a) m = std::max(m, std::abs(x));
  return m;
}

struct Magnitudes {
  double score, dp, group_queries;
};

// Upper bounds of the sums of a case.
Magnitudes magnitudes(const Case& c) {
  const AttentionShape& s = c.shape;
  const int64_t group = s.heads / s.kv_heads;
  return {std::abs(c.scale()) * static_cast<double>(s.head_dim) * max_abs(c.q) *
              max_abs(c.k),
          static_cast<double>(s.v_head_dim) * max_abs(c.dout) * max_abs(c.v) +
              max_abs(c.dlse),
          static_cast<double>(c.request.q_len * group)};
}

// The error of fp64 itself. A score is off by a few eps of its parts; exp turns
// that into a relative error of each probability, and each gradient is a sum of
// products with these.
struct Fp64Error {
  explicit Fp64Error(const Case& c) {
    const Magnitudes m = magnitudes(c);
    lse = 16 * kEps * (1 + m.score);
    out = lse * max_abs(c.v);
    ds = lse * 2 * m.dp;
    dq = ds * std::abs(c.scale()) * max_abs(c.k);
    dk = ds * std::abs(c.scale()) * max_abs(c.q) * m.group_queries;
    dv = lse * max_abs(c.dout) * m.group_queries;
    dsink = ds * static_cast<double>(c.request.q_len * c.request.batch);
  }
  double lse = 0, out = 0, ds = 0, dq = 0, dk = 0, dv = 0, dsink = 0;
};

void expect_near(const Doubles& got, const Wide& want, double tolerance,
                 const char* what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isinf(want[i])) {
      EXPECT_EQ(got[i], static_cast<double>(want[i])) << what << " " << i;
    } else {
      EXPECT_LE(std::abs(got[i] - static_cast<double>(want[i])), tolerance)
          << what << " " << i << ": " << got[i] << " for "
          << static_cast<double>(want[i]);
    }
  }
}

void check_against_naive(const Case& c) {
  const AttentionShape& s = c.shape;
  const Request& r = c.request;
  Wide out, lse, dq, dsink(static_cast<size_t>(s.heads));
  Wide dk(c.k.size()), dv(c.v.size());
  for (int64_t b = 0; b < r.batch; ++b) {
    for (int64_t h = 0; h < s.heads; ++h) {
      const size_t row = c.row(b, h, 0);
      const size_t kv_row = c.kv_row(b, h, 0);
      const auto d = static_cast<size_t>(s.head_dim);
      const auto dim_v = static_cast<size_t>(s.v_head_dim);
      const double scale = c.scale();
      const HeadResult x =
          naive({r.q_len, r.kv_len, s.head_dim, s.v_head_dim, scale, s.softcap,
                 &c.q[row * d], &c.k[kv_row * d], &c.v[kv_row * dim_v],
                 c.with_sink ? &c.sink[static_cast<size_t>(h)] : nullptr,
                 &c.legal[row * static_cast<size_t>(r.kv_len)],
                 &c.dout[row * dim_v], &c.dlse[row]});
      out.insert(out.end(), x.out.begin(), x.out.end());
      lse.insert(lse.end(), x.lse.begin(), x.lse.end());
      dq.insert(dq.end(), x.dq.begin(), x.dq.end());
      for (size_t i = 0; i < x.dk.size(); ++i) dk[kv_row * d + i] += x.dk[i];
      for (size_t i = 0; i < x.dv.size(); ++i) {
        dv[kv_row * dim_v + i] += x.dv[i];
      }
      dsink[static_cast<size_t>(h)] += x.dsink;
    }
  }
  if (!c.with_sink) dsink.clear();
  const Fp64Error error(c);
  const AttentionOutputs f = c.forward();
  expect_near(f.out, out, error.out, "out");
  expect_near(f.lse, lse, error.lse, "lse");
  const AttentionGradients g = c.backward();
  expect_near(g.dq, dq, error.dq, "dq");
  expect_near(g.dk, dk, error.dk, "dk");
  expect_near(g.dv, dv, error.dv, "dv");
  expect_near(g.dsink_logits, dsink, error.dsink, "dsink_logits");
}

TEST(Reference, AgreesWithNaiveLongDouble) {
  int with_rows_without_keys = 0;
  for (const auto& masks : mask_sets()) {
    for (uint64_t seed = 1; seed <= 40; ++seed) {
      const Case c = make_case(seed, masks);
      SCOPED_TRACE(c.name);
      check_against_naive(c);
      if (HasFailure()) return;
      for (int64_t i = 0; i < c.request.q_len; ++i) {
        with_rows_without_keys += !c.sees_any(0, 0, i);
      }
    }
  }
  EXPECT_GT(with_rows_without_keys, 100);
}

TEST(Reference, AgreesWithNaiveAtLargerSizes) {
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    Random random(seed);
    Case c;
    c.request.masks = {*parse_mask("causal | prefix")};
    c.request.q_len = 70;
    c.request.kv_len = 90;
    c.shape = {6, 2, 24, 40, std::nullopt, seed == 2 ? 30.0 : 0.0};
    c.with_sink = seed == 3;
    fill_tensors(random, c, 3);
    fill_facts(random, c);
    fill_legal(c, {rules()[8]});
    SCOPED_TRACE(seed);
    check_against_naive(c);
  }
}

// ---- Check 2: finite differences through a scalar loss. ----

// loss(high) - loss(low), where the loss weighs outputs by dout and dlse. Rows
// that do not read the changed input keep their bits and add exactly 0.
double loss_difference(const Case& c, const AttentionOutputs& high,
                       const AttentionOutputs& low) {
  double sum = 0;
  for (size_t i = 0; i < high.out.size(); ++i) {
    sum += c.dout[i] * (high.out[i] - low.out[i]);
  }
  for (size_t i = 0; i < high.lse.size(); ++i) {
    if (std::isfinite(high.lse[i])) {
      sum += c.dlse[i] * (high.lse[i] - low.lse[i]);
    }
  }
  return sum;
}

// Central differences at two steps give the derivative to fourth order, and
// their disagreement bounds the remaining truncation error.
void check_differences(Case& c, Doubles Case::*input, const Doubles& gradient,
                       const char* what) {
  const Magnitudes m = magnitudes(c);
  // An upper bound of the sum over the rows that read one input.
  const double rows = std::max(
      m.group_queries, static_cast<double>(c.request.q_len * c.request.batch));
  const double size = rows * (m.dp + max_abs(c.dlse) * (m.score + 5));
  const double h = std::ldexp(1.0, -13);
  const double rounding = 8 * kEps * (1 + m.score) * size / h;
  double total_tolerance = 0;
  double total_gradient = 0;
  ASSERT_EQ(gradient.size(), (c.*input).size());
  for (size_t i = 0; i < gradient.size(); ++i) {
    const double x = (c.*input)[i];
    auto central = [&](double step) {
      const double high = x + step;
      const double low = x - step;
      (c.*input)[i] = high;
      const AttentionOutputs above = c.forward();
      (c.*input)[i] = low;
      const AttentionOutputs below = c.forward();
      (c.*input)[i] = x;
      return loss_difference(c, above, below) / (high - low);
    };
    const double coarse = central(h);
    const double fine = central(h / 2);
    const double best = (4 * fine - coarse) / 3;
    const double tolerance = std::abs(best - fine) / 4 + rounding;
    EXPECT_LE(std::abs(gradient[i] - best), tolerance)
        << what << " " << i << ": " << gradient[i] << " for " << best;
    total_tolerance += tolerance;
    total_gradient += std::abs(gradient[i]);
  }
  // A tolerance that swallows the gradients would prove nothing.
  EXPECT_LE(total_tolerance,
            1e-4 * total_gradient + 1e-5 * static_cast<double>(gradient.size()))
      << what;
}

TEST(Reference, GradientsAgreeWithFiniteDifferences) {
  for (const auto& masks : mask_sets()) {
    for (uint64_t seed = 101; seed <= 103; ++seed) {
      Case c = make_case(seed, masks);
      SCOPED_TRACE(c.name);
      const AttentionGradients g = c.backward();
      check_differences(c, &Case::q, g.dq, "dq");
      check_differences(c, &Case::k, g.dk, "dk");
      check_differences(c, &Case::v, g.dv, "dv");
      if (c.with_sink) check_differences(c, &Case::sink, g.dsink_logits, "dz");
      if (HasFailure()) return;
    }
  }
}

// ---- Check 3: rows without keys, NaN and Inf, very large scores. ----

// Two queries, three keys; query 0 sees key 0, query 1 sees keys 0 and 1, and
// no query sees key 2.
Case small_case() {
  Case c;
  c.request.masks = {*parse_mask("causal")};
  c.request.q_len = 2;
  c.request.kv_len = 3;
  c.arrays = {{0}};
  c.facts.q_offsets = c.arrays[0];
  c.shape = {1, 1, 2, 2, 1.0, 0};
  c.q = {1, 2, 3, 4};
  c.k = {1, 0, 0, 1, 1, 1};
  c.v = {5, 6, 7, 8, 9, 10};
  c.dout = {1, 2, 3, 4};
  c.dlse = {0.5, 0.25};
  c.sink = {1.5};
  return c;
}

TEST(Reference, KnownNumbers) {
  const Case c = small_case();
  const AttentionOutputs f = c.forward();
  const double e = std::exp(1.0);
  // Query 1 has scores 3 and 4.
  EXPECT_DOUBLE_EQ(f.out[0], 5);
  EXPECT_DOUBLE_EQ(f.out[1], 6);
  EXPECT_DOUBLE_EQ(f.out[2], (5 + 7 * e) / (1 + e));
  EXPECT_DOUBLE_EQ(f.out[3], (6 + 8 * e) / (1 + e));
  EXPECT_DOUBLE_EQ(f.lse[0], 1);
  EXPECT_DOUBLE_EQ(f.lse[1], 3 + std::log(1 + e));
}

TEST(Reference, ScaleDefaultsToInverseRootOfHeadDim) {
  Case c = small_case();
  c.shape.scale.reset();
  const AttentionOutputs absent = c.forward();
  c.shape.scale = 1 / std::sqrt(2.0);
  EXPECT_EQ(absent.out, c.forward().out);
  EXPECT_DOUBLE_EQ(absent.lse[0], 1 / std::sqrt(2.0));
}

TEST(Reference, QueryWithoutLegalKey) {
  for (const bool with_sink : {false, true}) {
    Case c = small_case();
    c.with_sink = with_sink;
    c.arrays[0][0] = -1;  // query 0 is before all keys
    // The values of query 0 must have no effect.
    for (const double bad : {1e300, kInf, kNan}) {
      c.q[0] = c.q[1] = c.dout[0] = c.dout[1] = bad;
      if (!with_sink) c.dlse[0] = bad;
      const AttentionOutputs f = c.forward();
      EXPECT_EQ(f.out[0], 0);
      EXPECT_EQ(f.out[1], 0);
      EXPECT_FALSE(std::signbit(f.out[0]));
      EXPECT_EQ(f.lse[0], with_sink ? 1.5 : -kInf);
      const AttentionGradients g = c.backward();
      EXPECT_EQ(g.dq[0], 0);
      EXPECT_EQ(g.dq[1], 0);
      // Query 1 sees only key 0: without a sink its score changes only lse.
      for (size_t i = 0; i < 2; ++i) {
        EXPECT_TRUE(std::isfinite(g.dk[i])) << i;
        EXPECT_EQ(g.dk[2 + i], 0);
        EXPECT_EQ(g.dk[4 + i], 0);
      }
      if (with_sink) {
        const double p = std::exp(1.5 - f.lse[1]);
        const double a = 3 * 5 + 4 * 6;
        EXPECT_NEAR(g.dsink_logits[0], 0.5 + p * (0.25 - (1 - p) * a),
                    Fp64Error(c).dsink);
      } else {
        EXPECT_DOUBLE_EQ(g.dk[0], 0.25 * 3);
        EXPECT_DOUBLE_EQ(g.dk[1], 0.25 * 4);
        EXPECT_TRUE(g.dsink_logits.empty());
      }
    }
  }
}

TEST(Reference, NothingLegalAnywhere) {
  for (const auto& [name, bad] :
       {std::pair{"nan", kNan}, std::pair{"inf", kInf}}) {
    SCOPED_TRACE(name);
    Case c = small_case();
    c.request.masks = {*parse_mask("!full")};
    std::fill(c.q.begin(), c.q.end(), bad);
    std::fill(c.k.begin(), c.k.end(), bad);
    std::fill(c.v.begin(), c.v.end(), bad);
    std::fill(c.dout.begin(), c.dout.end(), bad);
    std::fill(c.dlse.begin(), c.dlse.end(), bad);
    const AttentionOutputs f = c.forward();
    EXPECT_EQ(f.out, Doubles(4, 0.0));
    EXPECT_EQ(f.lse, Doubles(2, -kInf));
    const AttentionGradients g = c.backward();
    EXPECT_EQ(g.dq, Doubles(4, 0.0));
    EXPECT_EQ(g.dk, Doubles(6, 0.0));
    EXPECT_EQ(g.dv, Doubles(6, 0.0));
    c.with_sink = true;
    c.dlse = {0.5, 0.25};
    EXPECT_EQ(c.forward().lse, Doubles(2, 1.5));
    EXPECT_EQ(c.forward().out, Doubles(4, 0.0));
    EXPECT_EQ(c.backward().dsink_logits, Doubles(1, 0.75));
    EXPECT_EQ(c.backward().dk, Doubles(6, 0.0));
    c.dlse.clear();
    EXPECT_EQ(c.backward().dsink_logits, Doubles(1, 0.0));
  }
}

TEST(Reference, QueryWithoutLegalKeyTakesAnySinkLogit) {
  Case c = small_case();
  c.request.masks = {*parse_mask("!full")};
  c.with_sink = true;
  for (const double logit : {-1e300, 1e300, -kInf, kInf, kNan}) {
    SCOPED_TRACE(logit);
    c.sink = {logit};
    const AttentionOutputs f = c.forward();
    EXPECT_EQ(f.out, Doubles(4, 0.0));
    for (const double lse : f.lse) {
      EXPECT_TRUE(lse == logit || (std::isnan(lse) && std::isnan(logit)));
    }
    EXPECT_EQ(c.backward().dsink_logits, Doubles(1, 0.75));
  }
}

void poison(Doubles& a, size_t row, int64_t dim, double with) {
  const auto n = static_cast<size_t>(dim);
  std::fill_n(a.begin() + static_cast<int64_t>(row * n), n, with);
}

bool same_bits(const double* a, const double* b, int64_t n) {
  return std::equal(a, a + n, b);  // NaN equals nothing, so NaN fails too
}

// Poisons one key at a time, in K, in V or in both.
TEST(Reference, IllegalKeysNeverLeakAndLegalOnesAlwaysDo) {
  int untouched = 0;
  int touched = 0;
  for (const auto& masks : mask_sets()) {
    for (uint64_t seed = 201; seed <= 206; ++seed) {
      const Case clean = make_case(seed, masks);
      SCOPED_TRACE(clean.name);
      const int64_t d = clean.shape.head_dim;
      const int64_t dv = clean.shape.v_head_dim;
      const auto du = static_cast<size_t>(d);
      const auto dvu = static_cast<size_t>(dv);
      const AttentionOutputs f = clean.forward();
      const AttentionGradients g = clean.backward();
      const int64_t j = static_cast<int64_t>(seed) % clean.request.kv_len;
      const double with = seed % 3 ? kNan : kInf;
      const bool in_k = seed % 2;
      Case c = clean;
      for (int64_t b = 0; b < c.request.batch; ++b) {
        for (int64_t h = 0; h < c.shape.heads; ++h) {
          poison(in_k ? c.k : c.v, c.kv_row(b, h, j), in_k ? d : dv, with);
        }
      }
      const AttentionOutputs bad_f = c.forward();
      const AttentionGradients bad_g = c.backward();
      std::set<size_t> legal_keys, reached_keys;
      for (int64_t b = 0; b < c.request.batch; ++b) {
        for (int64_t h = 0; h < c.shape.heads; ++h) {
          for (int64_t i = 0; i < c.request.q_len; ++i) {
            const size_t row = c.row(b, h, i);
            if (!c.sees(b, h, i, j)) {
              ++untouched;
              EXPECT_EQ(f.lse[row], bad_f.lse[row]);
              EXPECT_TRUE(
                  same_bits(&f.out[row * dvu], &bad_f.out[row * dvu], dv));
              EXPECT_TRUE(same_bits(&g.dq[row * du], &bad_g.dq[row * du], d));
            } else {
              ++touched;
              if (std::isnan(with)) {
                EXPECT_EQ(std::isnan(bad_f.lse[row]), in_k);
                EXPECT_TRUE(std::isnan(bad_f.out[row * dvu]));
                EXPECT_TRUE(std::isnan(bad_g.dq[row * du]));
              }
              for (int64_t t = 0; t < c.request.kv_len; ++t) {
                if (c.sees(b, h, i, t)) reached_keys.insert(c.kv_row(b, h, t));
              }
            }
            for (int64_t t = 0; t < c.request.kv_len; ++t) {
              if (c.sees(b, h, i, t)) legal_keys.insert(c.kv_row(b, h, t));
            }
          }
        }
      }
      // Keys that share no query with the poisoned key keep their bits; keys
      // that no query reads have no gradient.
      for (size_t row = 0; row * du < c.k.size(); ++row) {
        if (!reached_keys.count(row)) {
          EXPECT_TRUE(same_bits(&g.dk[row * du], &bad_g.dk[row * du], d));
          EXPECT_TRUE(same_bits(&g.dv[row * dvu], &bad_g.dv[row * dvu], dv));
        }
        if (!legal_keys.count(row)) {
          EXPECT_EQ(g.dk[row * du], 0);
          EXPECT_EQ(g.dv[row * dvu], 0);
        }
      }
      if (HasFailure()) return;
    }
  }
  EXPECT_GT(untouched, 500);
  EXPECT_GT(touched, 500);
}

// One query, one feature, scale 1: scores are the keys themselves.
Case row_of_scores(const Doubles& scores, const Doubles& values) {
  Case c;
  c.request.masks = {*parse_mask("full")};
  c.request.q_len = 1;
  c.request.kv_len = static_cast<int64_t>(scores.size());
  c.shape = {1, 1, 1, 1, 1.0, 0};
  c.q = {1};
  c.k = scores;
  c.v = values;
  c.dout = {1};
  c.dlse = {1};
  c.sink = {0};
  return c;
}

TEST(Reference, HugeScoresAreSafe) {
  for (const double s : {1e3, 1e18, -1e18, 1e300, -1e300, 1.7e308, -1.7e308}) {
    SCOPED_TRACE(s);
    const Case c = row_of_scores({s, s}, {2, 4});
    EXPECT_EQ(c.forward().out[0], 3);
    // s + log(2), rounded.
    EXPECT_NEAR(c.forward().lse[0], s, std::abs(s) * kEps + std::log(2.0));
    // log(2) is lost in lse, yet each key has half of the probability.
    const AttentionGradients g = c.backward();
    EXPECT_EQ(g.dv, (Doubles{0.5, 0.5}));
    EXPECT_EQ(g.dk, (Doubles{0.5 * (2 - 3 + 1), 0.5 * (4 - 3 + 1)}));
  }
  // Both extremes at once: the difference overflows, so the probability is 0.
  const Case c = row_of_scores({-1.7e308, 1.7e308}, {2, 4});
  EXPECT_EQ(c.forward().out[0], 4);
  EXPECT_EQ(c.backward().dk, (Doubles{0, 1}));
  // Values near the end of the range: the mean is within it.
  EXPECT_EQ(row_of_scores({0, 0}, {1.7e308, 1.7e308}).forward().out[0],
            1.7e308);
}

TEST(Reference, HugeSinkLogits) {
  Case c = row_of_scores({1, 1}, {2, 4});
  c.with_sink = true;
  c.sink = {1e18};
  EXPECT_EQ(c.forward().out[0], 0);
  EXPECT_EQ(c.forward().lse[0], 1e18);
  EXPECT_EQ(c.backward().dsink_logits[0], 1);
  EXPECT_EQ(c.backward().dk, (Doubles{0, 0}));
  for (const double off : {-1e18, -kInf}) {  // as without a sink
    c.sink = {off};
    EXPECT_EQ(c.forward().out[0], 3);
    EXPECT_DOUBLE_EQ(c.forward().lse[0], 1 + std::log(2.0));
    EXPECT_EQ(c.backward().dsink_logits[0], 0);
  }
  c.sink = {kNan};
  EXPECT_TRUE(std::isnan(c.forward().out[0]));
  EXPECT_TRUE(std::isnan(c.forward().lse[0]));
}

TEST(Reference, InfiniteScoresFollowIeee) {
  // A score of -inf beside a finite score has probability 0.
  Case c = row_of_scores({-kInf, 2, 2}, {7, 2, 4});
  EXPECT_EQ(c.forward().out[0], 3);
  EXPECT_DOUBLE_EQ(c.forward().lse[0], 2 + std::log(2.0));
  EXPECT_EQ(c.backward().dk[0], 0);
  EXPECT_EQ(c.backward().dv[0], 0);
  // With all scores -inf, or one +inf, the softmax is undefined.
  EXPECT_TRUE(
      std::isnan(row_of_scores({-kInf, -kInf}, {2, 4}).forward().out[0]));
  EXPECT_TRUE(std::isnan(row_of_scores({kInf, 0}, {2, 4}).forward().out[0]));
  EXPECT_TRUE(std::isnan(row_of_scores({kInf, 0}, {2, 4}).forward().lse[0]));
  // With all scores -inf and a finite sink logit, the sink has probability 1.
  c = row_of_scores({-kInf, -kInf}, {2, 4});
  c.with_sink = true;
  EXPECT_EQ(c.forward().out[0], 0);
  EXPECT_EQ(c.forward().lse[0], 0);
  EXPECT_EQ(c.backward().dsink_logits[0], 1);
}

TEST(Reference, SoftcapBoundsAnyScore) {
  Case c = row_of_scores({1e200, 1e200, -1e200}, {2, 4, 1000});
  c.q = {1e200};  // products overflow to inf
  c.shape.softcap = 30;
  EXPECT_DOUBLE_EQ(c.forward().lse[0], 30 + std::log(2.0));
  EXPECT_EQ(c.forward().out[0], 3);  // 1000 exp(-60) is lost
  EXPECT_EQ(c.backward().dk, (Doubles{0, 0, 0}));
  EXPECT_EQ(c.backward().dq, Doubles{0});
  c.q = {kNan};
  EXPECT_TRUE(std::isnan(c.forward().lse[0]));
}

TEST(Reference, SlopeOfSoftcapKeepsItsDigitsAtSaturation) {
  // For s of 40 times the cap 1 - tanh^2 is 0 in fp64; the slope is 4 exp(-80).
  Case c = row_of_scores({40, 40}, {2, 4});
  c.shape.softcap = 1;
  const double slope = 4 * std::exp(-80.0);
  EXPECT_EQ(c.backward().dk[0], 0);  // 2 - 3 + 1
  EXPECT_DOUBLE_EQ(c.backward().dk[1] / slope, 0.5 * (4 - 3 + 1));
}

// ---- Check 4: properties. ----

TEST(Reference, ProbabilitiesSumToOne) {
  for (const auto& masks : mask_sets()) {
    for (uint64_t seed = 301; seed <= 310; ++seed) {
      Case c = make_case(seed, masks);
      SCOPED_TRACE(c.name);
      std::fill(c.v.begin(), c.v.end(), 1.0);
      const AttentionOutputs f = c.forward();
      for (int64_t b = 0; b < c.request.batch; ++b) {
        for (int64_t h = 0; h < c.shape.heads; ++h) {
          for (int64_t i = 0; i < c.request.q_len; ++i) {
            const size_t row = c.row(b, h, i);
            double want = c.sees_any(b, h, i) ? 1 : 0;
            if (c.with_sink && want == 1) {
              want -= std::exp(c.sink[static_cast<size_t>(h)] - f.lse[row]);
            }
            const size_t at = row * static_cast<size_t>(c.shape.v_head_dim);
            // 1, less the probability of the sink.
            EXPECT_NEAR(f.out[at], want, 2 * Fp64Error(c).out);
          }
        }
      }
    }
  }
}

TEST(Reference, AddingToAllScoresOfARowShiftsOnlyLse) {
  for (uint64_t seed = 401; seed <= 420; ++seed) {
    Case c = make_case(seed, {rules()[2]});
    SCOPED_TRACE(c.name);
    c.shape.softcap = 0;
    c.with_sink = false;
    c.shape.scale = c.scale();
    const AttentionOutputs before = c.forward();
    const AttentionGradients g_before = c.backward();
    // One more feature: 1 in every key, `shift` in every query.
    const double shift = seed % 2 ? 100 : -1000;
    auto widen = [&](const Doubles& a, double with) {
      Doubles r;
      const auto d = static_cast<size_t>(c.shape.head_dim);
      for (size_t i = 0; i < a.size(); ++i) {
        r.push_back(a[i]);
        if (i % d == d - 1) r.push_back(with);
      }
      return r;
    };
    Case wide = c;
    wide.q = widen(c.q, shift);
    wide.k = widen(c.k, 1);
    wide.shape.head_dim += 1;
    const AttentionOutputs after = wide.forward();
    const AttentionGradients g_after = wide.backward();
    // The error bound of the larger scores covers both.
    const Fp64Error error(wide);
    for (size_t i = 0; i < before.out.size(); ++i) {
      EXPECT_NEAR(before.out[i], after.out[i], 2 * error.out);
    }
    const auto d = static_cast<size_t>(c.shape.head_dim);
    for (size_t i = 0; i < before.lse.size(); ++i) {
      if (std::isinf(before.lse[i])) {
        EXPECT_EQ(after.lse[i], before.lse[i]);
        continue;
      }
      EXPECT_NEAR(before.lse[i] + shift * c.scale(), after.lse[i],
                  2 * error.lse);
      for (size_t x = 0; x < d; ++x) {
        EXPECT_NEAR(g_before.dq[i * d + x], g_after.dq[i * (d + 1) + x],
                    2 * error.dq);
      }
      // The shift does not change out; lse changes by all of it.
      EXPECT_NEAR(g_after.dq[i * (d + 1) + d], c.dlse[i] * c.scale(), error.dq);
    }
  }
}

// Moves blocks of `block` values of each batch row: block n takes from[n].
Doubles permuted(const Doubles& a, const std::vector<size_t>& from,
                 size_t batch) {
  const size_t block = a.size() / batch / from.size();
  Doubles r;
  for (size_t b = 0; b < batch; ++b) {
    for (const size_t n : from) {
      const auto at =
          a.begin() + static_cast<int64_t>((b * from.size() + n) * block);
      r.insert(r.end(), at, at + static_cast<int64_t>(block));
    }
  }
  return r;
}

TEST(Reference, PermutingHeadsPermutesResults) {
  for (uint64_t seed = 501; seed <= 520; ++seed) {
    Case c = make_case(seed, {rules()[4]});
    Random random(seed);
    c.with_sink = true;
    c.shape.kv_heads = 3;
    c.shape.heads = 6;
    fill_tensors(random, c, 1);
    SCOPED_TRACE(c.name);
    const auto batch = static_cast<size_t>(c.request.batch);
    const std::vector<size_t> kv = {2, 0, 1};  // whole groups move
    const std::vector<size_t> heads = {4, 5, 0, 1, 2, 3};
    Case p = c;
    p.q = permuted(c.q, heads, batch);
    p.k = permuted(c.k, kv, batch);
    p.v = permuted(c.v, kv, batch);
    p.sink = permuted(c.sink, heads, 1);
    p.dout = permuted(c.dout, heads, batch);
    p.dlse = permuted(c.dlse, heads, batch);
    const AttentionOutputs f = c.forward(), pf = p.forward();
    EXPECT_EQ(permuted(f.out, heads, batch), pf.out);
    EXPECT_EQ(permuted(f.lse, heads, batch), pf.lse);
    const AttentionGradients g = c.backward(), pg = p.backward();
    EXPECT_EQ(permuted(g.dq, heads, batch), pg.dq);
    EXPECT_EQ(permuted(g.dk, kv, batch), pg.dk);
    EXPECT_EQ(permuted(g.dv, kv, batch), pg.dv);
    EXPECT_EQ(permuted(g.dsink_logits, heads, 1), pg.dsink_logits);
  }
}

TEST(Reference, SharedHeadsAreRepeatedHeads) {
  for (uint64_t seed = 601; seed <= 620; ++seed) {
    Case c = make_case(seed, {rules()[2]});
    Random random(seed);
    c.shape.kv_heads = 2;
    c.shape.heads = 6;
    fill_tensors(random, c, 1);
    SCOPED_TRACE(c.name);
    const auto batch = static_cast<size_t>(c.request.batch);
    auto repeat = [&](const Doubles& a) {
      const size_t block = a.size() / batch / 2;
      Doubles r;
      for (size_t n = 0; n < 2 * batch; ++n) {
        for (int copy = 0; copy < 3; ++copy) {
          r.insert(r.end(), a.begin() + static_cast<int64_t>(n * block),
                   a.begin() + static_cast<int64_t>((n + 1) * block));
        }
      }
      return r;
    };
    Case each = c;
    each.shape.kv_heads = 6;
    each.k = repeat(c.k);
    each.v = repeat(c.v);
    EXPECT_EQ(c.forward().out, each.forward().out);
    EXPECT_EQ(c.forward().lse, each.forward().lse);
    const AttentionGradients g = c.backward(), e = each.backward();
    EXPECT_EQ(g.dq, e.dq);
    EXPECT_EQ(g.dsink_logits, e.dsink_logits);
    const size_t block = c.k.size() / batch / 2;
    for (size_t i = 0; i < g.dk.size(); ++i) {
      double sum = 0;
      for (size_t copy = 0; copy < 3; ++copy) {
        sum += e.dk[(i / block * 3 + copy) * block + i % block];
      }
      EXPECT_NEAR(g.dk[i], sum, 2 * Fp64Error(c).dk);
    }
  }
}

TEST(Reference, OneMaskOrOnePerHeadGiveTheSameBits) {
  for (uint64_t seed = 701; seed <= 710; ++seed) {
    Case c = make_case(seed, {rules()[2]});
    SCOPED_TRACE(c.name);
    Case each = c;
    each.request.masks.assign(static_cast<size_t>(c.shape.heads),
                              c.request.masks[0]);
    EXPECT_EQ(c.forward().out, each.forward().out);
    const AttentionGradients g = c.backward(), e = each.backward();
    EXPECT_EQ(g.dq, e.dq);
    EXPECT_EQ(g.dk, e.dk);
    EXPECT_EQ(g.dv, e.dv);
    EXPECT_EQ(g.dsink_logits, e.dsink_logits);
    EXPECT_EQ(g.dk, c.backward().dk);  // the same in every call
  }
}

// Attention over two parts of the keys, merged by their log-sum-exps.
TEST(Reference, PartsMergeThroughLse) {
  for (uint64_t seed = 801; seed <= 820; ++seed) {
    Random random(seed);
    Case c;
    c.request.masks = {*parse_mask("full")};
    c.request.q_len = 3;
    c.request.kv_len = between(random, 2, 12);
    c.shape = {1, 1, 4, 3, std::nullopt, seed % 2 ? 15.0 : 0.0};
    fill_tensors(random, c, 3);
    const int64_t cut = between(random, 1, c.request.kv_len - 1);
    auto part = [&](int64_t from, int64_t to) {
      Case p = c;
      p.request.kv_len = to - from;
      p.k.assign(c.k.begin() + from * 4, c.k.begin() + to * 4);
      p.v.assign(c.v.begin() + from * 3, c.v.begin() + to * 3);
      return p.forward();
    };
    const AttentionOutputs l = part(0, cut);
    const AttentionOutputs r = part(cut, c.request.kv_len);
    const AttentionOutputs whole = c.forward();
    const Fp64Error error(c);
    for (size_t i = 0; i < whole.out.size(); ++i) {
      const double wl = std::exp(l.lse[i / 3] - whole.lse[i / 3]);
      const double wr = std::exp(r.lse[i / 3] - whole.lse[i / 3]);
      // Each weight has the error of two log-sum-exps, each output its own.
      EXPECT_NEAR(wl + wr, 1, 2 * error.lse) << seed;
      EXPECT_NEAR(wl * l.out[i] + wr * r.out[i], whole.out[i], 4 * error.out)
          << seed;
    }
  }
}

TEST(Reference, GradientsAreLinearInWhatComesIn) {
  Case c = make_case(901, {rules()[2]});
  Case no_lse = c;
  no_lse.dlse.clear();
  Case only_lse = c;
  std::fill(only_lse.dout.begin(), only_lse.dout.end(), 0.0);
  const Doubles both = c.backward().dq;
  const Doubles a = no_lse.backward().dq;
  const Doubles b = only_lse.backward().dq;
  for (size_t i = 0; i < both.size(); ++i) {
    EXPECT_NEAR(both[i], a[i] + b[i], 3 * Fp64Error(c).dq);
  }
  EXPECT_GT(max_abs(b), 0);
  // An absent dlse is a dlse of zeros.
  no_lse.dlse.assign(c.dlse.size(), 0.0);
  EXPECT_EQ(no_lse.backward().dq, a);
}

// ---- Bad input. ----

struct Bad {
  std::function<void(Case&)> breaks;
  std::string message;
  ErrorKind kind = ErrorKind::invalid;
};

const std::vector<Bad>& bad_inputs() {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  static const std::vector<Bad> all = {
      {[](Case& c) { c.shape.heads = 0; },
       "[reference] sizes must be 1 or more, found 0 for heads"},
      {[](Case& c) { c.shape.heads = -4; },
       "[reference] sizes must be 1 or more, found -4 for heads"},
      {[](Case& c) { c.shape.kv_heads = 0; },
       "[reference] sizes must be 1 or more, found 0 for kv_heads"},
      {[](Case& c) { c.shape.head_dim = 0; },
       "[reference] sizes must be 1 or more, found 0 for head_dim"},
      {[](Case& c) { c.shape.v_head_dim = -1; },
       "[reference] sizes must be 1 or more, found -1 for v_head_dim"},
      {[](Case& c) {
         c.shape.heads = 6;
         c.shape.kv_heads = 4;
       },
       "[reference] kv_heads must divide heads, found 4 kv_heads for 6 heads"},
      {[](Case& c) { c.shape.kv_heads = 2; },
       "[reference] kv_heads must divide heads, found 2 kv_heads for 1 heads"},
      {[](Case& c) { c.shape.scale = kInf; },
       "[reference] numbers must be finite, found inf for scale"},
      {[](Case& c) { c.shape.scale = kNan; },
       "[reference] numbers must be finite, found nan for scale"},
      {[](Case& c) { c.shape.softcap = -1; },
       "[reference] numbers must be finite and 0 or more, found -1 for "
       "softcap"},
      {[](Case& c) { c.shape.softcap = kInf; },
       "[reference] numbers must be finite and 0 or more, found inf for "
       "softcap"},
      {[](Case& c) { c.shape.softcap = kNan; },
       "[reference] numbers must be finite and 0 or more, found nan for "
       "softcap"},
      {[](Case& c) { c.request.masks.push_back(c.request.masks[0]); },
       "[reference] plan heads must divide heads, found 2 plan heads for 1 "
       "heads"},
      {[](Case& c) { c.q.pop_back(); },
       "[reference] q must hold [batch, heads, q_len, head_dim] values, found "
       "3 for [1, 1, 2, 2]"},
      {[](Case& c) { c.q.clear(); },
       "[reference] q must hold [batch, heads, q_len, head_dim] values, found "
       "0 for [1, 1, 2, 2]"},
      {[](Case& c) { c.k.push_back(0); },
       "[reference] k must hold [batch, kv_heads, kv_len, head_dim] values, "
       "found 7 for [1, 1, 3, 2]"},
      {[](Case& c) { c.v.pop_back(); },
       "[reference] v must hold [batch, kv_heads, kv_len, v_head_dim] values, "
       "found 5 for [1, 1, 3, 2]"},
      {[](Case& c) { c.shape.head_dim = kMax; },
       "[reference] q must hold [batch, heads, q_len, head_dim] values, found "
       "4 for [1, 1, 2, 9223372036854775807]"},
      // A size of 2^64 + 8 values must not wrap around to the 8 given.
      {[](Case& c) {
         c.request.q_len = 4;
         c.q.resize(8);
         c.shape.head_dim = (int64_t{1} << 62) + 2;
       },
       "[reference] q must hold [batch, heads, q_len, head_dim] values, found "
       "8 for [1, 1, 4, 4611686018427387906]"},
      {[](Case& c) {
         c.with_sink = true;
         c.sink = {1, 2};
       },
       "[reference] sink_logits must hold [heads] values, found 2 for [1]"},
      {[](Case& c) {
         c.with_sink = true;
         c.sink.clear();
       },
       "[reference] sink_logits must hold [heads] values, found 0 for [1]"},
      {[](Case& c) {
         c.facts = {};
         c.request.q_len = c.request.kv_len = int64_t{1} << 18;
       },
       "[reference] query-key pairs must be at most 17179869184, found "
       "68719476736 for [batch, heads, q_len, kv_len] [1, 1, 262144, 262144]",
       ErrorKind::limit},
      {[](Case& c) {
         c.facts = {};
         c.request.q_len = c.request.kv_len = kMaxTokens;
         c.shape.heads = 8;
       },
       "[reference] query-key pairs must be at most 17179869184, found more "
       "than 2^63 for [batch, heads, q_len, kv_len] [1, 8, 1073741824, "
       "1073741824]",
       ErrorKind::limit},
      {[](Case& c) { c.shape.heads = kMax; },
       "[reference] query-key pairs must be at most 17179869184, found more "
       "than 2^63 for [batch, heads, q_len, kv_len] [1, 9223372036854775807, "
       "2, 3]",
       ErrorKind::limit},
      // Few pairs, small q and k, but an output larger than any memory.
      {[](Case& c) { c.shape.v_head_dim = int64_t{1} << 40; },
       "[reference] output values must be at most 268435456, found "
       "2199023255552 for [batch, heads, q_len, v_head_dim] [1, 1, 2, "
       "1099511627776]",
       ErrorKind::limit},
      {[](Case& c) { c.request.q_len = 0; },
       "[request] q_len must be from 1 to 1073741824, found 0"},
      {[](Case& c) { c.request.masks = {*parse_mask("documents")}; },
       "[facts] documents needs doc_ids, found none for the mask"},
  };
  return all;
}

TEST(Reference, RefusesBadInputByName) {
  for (const Bad& bad : bad_inputs()) {
    SCOPED_TRACE(bad.message);
    Case c = small_case();
    bad.breaks(c);
    const auto f = reference_forward(c.request, c.facts, c.shape, c.inputs());
    ASSERT_FALSE(f.ok());
    EXPECT_EQ(f.error().message, bad.message);
    EXPECT_EQ(f.error().kind, bad.kind);
    const auto b = reference_backward(c.request, c.facts, c.shape, c.inputs(),
                                      c.dout, c.dlse);
    ASSERT_FALSE(b.ok());
    EXPECT_EQ(b.error().message, bad.message);
    EXPECT_EQ(b.error().kind, bad.kind);
  }
}

TEST(Reference, RefusesBadIncomingGradients) {
  Case c = small_case();
  auto message = [&] {
    const auto r = reference_backward(c.request, c.facts, c.shape, c.inputs(),
                                      c.dout, c.dlse);
    return r.ok() ? std::string("ok") : r.error().message;
  };
  EXPECT_EQ(message(), "ok");
  c.dlse.push_back(0);
  EXPECT_EQ(message(),
            "[reference] dlse must hold [batch, heads, q_len] values, found 3 "
            "for [1, 1, 2]");
  c.dout.clear();
  EXPECT_EQ(message(),
            "[reference] dout must hold [batch, heads, q_len, v_head_dim] "
            "values, found 0 for [1, 1, 2, 2]");
}

}  // namespace
}  // namespace tessera::reference
