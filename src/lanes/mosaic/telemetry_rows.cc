// lanes/mosaic/telemetry_rows.cc: joins rows in fp64, from numbers stored in
// fp32.
//
// With L the log-sum-exp over the keys, H their entropy, F the log-sum-exp over
// the first keys and z a sink logit, M = log(e^L + e^z), a = e^(L - M),
// b = e^(z - M):
//   mass = e^(F - M)     entropy = a H + a (M - L) + b (M - z)
// in which no term is negative.
#include "lanes/mosaic/telemetry_rows.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "lanes/mosaic/kernel_steps.h"
#include "lanes/mosaic/shape.h"

namespace tessera::mosaic {
namespace {

// Fields of a packed step (parts.h).
int64_t row_of(int32_t word) { return static_cast<uint32_t>(word) >> 18; }
bool is_live(int32_t word) { return (word & 12) != 0; }

double join(double a, double b) {
  const double most = std::max(a, b);
  if (!std::isfinite(most)) return most;
  return most + std::log(std::exp(a - most) + std::exp(b - most));
}

// weight * distance, and 0 where the weight is 0.
double term(double weight, double distance) {
  return weight == 0 ? 0 : weight * distance;
}

// Indices of the list's steps in `steps`.
std::vector<size_t> places_of_steps(const MosaicKernel& kernel,
                                    const MosaicArrays& arrays, int64_t list) {
  std::vector<size_t> out;
  auto add = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) out.push_back(static_cast<size_t>(i));
  };
  if (kernel.page == 0) {
    const auto l = static_cast<size_t>(list);
    add(arrays.range[l], arrays.range[l + 1]);
    return out;
  }
  const int64_t pages = pages_of_list(kernel);
  for (int64_t n = list * pages; n < (list + 1) * pages; ++n) {
    const int64_t begin = n * kernel.page;
    add(begin, begin + arrays.range[static_cast<size_t>(n)]);
  }
  return out;
}

}  // namespace

std::vector<uint8_t> live_queries(const MosaicKernel& kernel,
                                  const MosaicArrays& arrays, int64_t lists,
                                  int64_t queries) {
  KernelShape s;
  s.block_kv = kernel.tile.kv;
  const int64_t block = kernel.tile.q;
  const int64_t words = s.bit_rows() * block;
  std::vector<uint8_t> out(static_cast<size_t>(lists * queries), 0);
  for (int64_t list = 0; list < lists; ++list) {
    for (const size_t step : places_of_steps(kernel, arrays, list)) {
      const int32_t word = arrays.steps[step];
      if (!is_live(word)) continue;
      const int64_t first = row_of(word) * block;
      const int64_t count = std::min(block, queries - first);
      const int64_t bitmap = arrays.bits_of[step] * words;
      for (int64_t at = 0; at < words; ++at) {
        const int64_t q = at % block;
        if (q >= count) continue;
        const bool any = arrays.bits[static_cast<size_t>(bitmap + at)] != 0;
        out[static_cast<size_t>(list * queries + first + q)] |= any ? 1 : 0;
      }
    }
  }
  return out;
}

lanes::SinkRows join_rows(const TelemetryRows& rows,
                          std::span<const uint8_t> live, int64_t lists,
                          int64_t heads, int64_t queries,
                          std::optional<std::span<const float>> sink_logits) {
  const auto n = static_cast<int64_t>(rows.lse.size());
  const int64_t batch = n / heads / queries;
  const int64_t heads_of_list = batch * heads / lists;
  lanes::SinkRows out;
  out.mass.resize(rows.lse.size());
  out.entropy.resize(rows.lse.size());
  out.live.resize(rows.lse.size());
  for (int64_t row = 0; row < n; ++row) {
    const auto i = static_cast<size_t>(row);
    const int64_t head = row / queries;  // of all batch rows
    const int64_t list = head / heads_of_list;
    out.live[i] = live[static_cast<size_t>(list * queries + row % queries)];
    if (out.live[i] == 0) continue;
    const double own = rows.lse[i];
    double total = own, of_sink = 0;
    double entropy = rows.entropy[i];
    if (sink_logits) {
      const double z = (*sink_logits)[static_cast<size_t>(head % heads)];
      total = join(own, z);
      const double a = std::exp(own - total);
      of_sink = term(std::exp(z - total), total - z);
      entropy = term(a, entropy) + term(a, total - own);
    }
    if (!std::isfinite(total) || std::isnan(own)) {
      out.mass[i] = out.entropy[i] = std::numeric_limits<float>::quiet_NaN();
      continue;
    }
    // All scores are finite or -inf here, so the first keys' are too.
    out.mass[i] = static_cast<float>(
        std::min(1.0, std::exp(double{rows.first_lse[i]} - total)));
    out.entropy[i] = static_cast<float>(std::max(0.0, entropy + of_sink));
  }
  return out;
}

}  // namespace tessera::mosaic
