// tests/attention_odd.cc: compares the bits of results before and after.
#include "tests/attention_odd.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "tests/attention_choices.h"

namespace tessera::testing {
namespace {

struct Odd {
  char array;
  int64_t token, d;
  double value;
};

std::vector<std::vector<Odd>> trials() {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double inf = std::numeric_limits<double>::infinity();
  return {{{'k', 40, 3, nan}},
          {{'k', 130, 39, nan}},
          {{'k', 71, 5, inf}},
          {{'v', 71, 39, nan}},
          {{'v', 2, 0, inf}},
          {{'q', 71, 8, nan}},
          {{'q', 139, 8, inf}},
          {{'d', 127, 17, nan}},
          {{'d', 64, 17, -inf}},
          {{'k', 64, 3, nan}, {'v', 31, 5, inf}, {'d', 90, 1, nan}}};
}

// Every number that a call wrote, as bits: out, dq, dk, dv, lse.
std::vector<uint32_t> written(AttentionArrays& arrays) {
  std::vector<uint32_t> all;
  const auto add = [&](const auto& t) {
    const auto width = static_cast<size_t>(byte_width(t.dtype));
    for (int64_t h = 0; h < t.heads; ++h) {
      for (int64_t i = 0; i < t.tokens; ++i) {
        const auto* at =
            static_cast<const uint8_t*>(t.data) +
            (h * t.head_stride + i * t.token_stride) * byte_width(t.dtype);
        for (int64_t d = 0; d < t.dim; ++d, at += width) {
          std::memcpy(&all.emplace_back(), at, width);
        }
      }
    }
  };
  const ForwardTensors t = arrays.forward(true);
  const Gradients g = arrays.gradients();
  add(t.out), add(g.dq), add(g.dk), add(g.dv);
  for (const float x : t.lse) all.push_back(std::bit_cast<uint32_t>(x));
  return all;
}

std::vector<double> values(const Wanted& w) {
  std::vector<double> all;
  for (const auto* which : {&w.out, &w.dq, &w.dk, &w.dv, &w.lse}) {
    for (const reference::Expected& e : *which) all.push_back(e.value);
  }
  return all;
}

}  // namespace

std::optional<std::string> odd_numbers_fault(const char* mask, Dtype dtype,
                                             const JudgedRun& run,
                                             bool flushes) {
  AttentionCase c = plain_attention(mask, 140, 140, 40);
  c.dtype = dtype;
  AttentionArrays clean(c);
  const Wanted want = wanted(clean, flushes);
  const std::vector<double> before = values(want);
  if (auto fault = run(clean, want)) return fault;
  const std::vector<uint32_t> bits = written(clean);
  for (const std::vector<Odd>& odd : trials()) {
    AttentionArrays arrays(c);
    for (const Odd& o : odd) arrays.set(o.array, 0, 0, o.token, o.d, o.value);
    const auto fail = [&](const std::string& what) {
      return fmt::format("{} for {} of token {}: {}", what, odd[0].array,
                         odd[0].token, describe(c));
    };
    const Wanted want_odd = wanted(arrays, flushes);
    const std::vector<double> after = values(want_odd);
    if (before == after) return fail("nothing changed");
    const auto fault = run(arrays, want_odd);
    // An infinite dout may give Inf or NaN, since delta may be computed as
    // dout . out or as a sum of p times dout . v.
    const bool vague = odd[0].array == 'd' && std::isinf(odd[0].value);
    if (fault && !vague) return fail(*fault);
    const std::vector<uint32_t> got = written(arrays);
    for (size_t i = 0; i < got.size(); ++i) {
      if (before[i] == after[i] && got[i] != bits[i]) {
        return fail(fmt::format("element {} changed", i));
      }
    }
  }
  return {};
}

}  // namespace tessera::testing
