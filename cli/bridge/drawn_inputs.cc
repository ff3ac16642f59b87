// cli/bridge/drawn_inputs.cc: arrays of every dtype from one seed.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/fail.h"
#include "base/float16.h"
#include "base/text.h"
#include "cli/bridge/data.h"
#include "request/random_inputs.h"
#include "run/operation.h"

namespace tessera::cli {
namespace {

// The first stream of input arrays, above all named streams.
constexpr uint64_t kFirstStream = 1024;

template <class T>
void put(const AlignedBytes& to, size_t i, T value) {
  std::memcpy(to.data() + i * sizeof(T), &value, sizeof(T));
}

// A value in [0, 1), made from the bits of a normal number; uniform enough for
// test data.
double uniform(uint64_t seed, request::Stream stream, uint64_t i) {
  return 0.5 * std::erfc(-static_cast<double>(random_normal(seed, stream, i)) /
                         std::sqrt(2.0));
}

int64_t integer(const std::pair<int64_t, int64_t>& range, double share) {
  const double least = static_cast<double>(range.first);
  const double size = static_cast<double>(range.second) - least + 1;
  const double value = std::floor(least + share * size);
  if (value >= static_cast<double>(range.second)) return range.second;
  return std::max(range.first, static_cast<int64_t>(value));
}

void draw(const BridgeArray& array, const AlignedBytes& to, uint64_t seed,
          request::Stream stream) {
  const size_t count =
      to.view().size() / static_cast<size_t>(byte_width(array.dtype));
  const auto range = array.range.value_or(std::pair(int64_t{0}, int64_t{1}));
  for (size_t i = 0; i < count; ++i) {
    switch (array.dtype) {
      case Dtype::f32:
        put(to, i, random_normal(seed, stream, i));
        continue;
      case Dtype::f64:
        put(to, i, double{random_normal(seed, stream, i)});
        continue;
      case Dtype::bf16:
        put(to, i, to_bf16(random_normal(seed, stream, i)));
        continue;
      case Dtype::f16:
        put(to, i, to_f16(random_normal(seed, stream, i)));
        continue;
      default:
        break;
    }
    const int64_t value = integer(range, uniform(seed, stream, i));
    // Little-endian: the low bytes come first for every width.
    std::memcpy(to.data() + i * static_cast<size_t>(byte_width(array.dtype)),
                &value, static_cast<size_t>(byte_width(array.dtype)));
  }
}

}  // namespace

Result<std::vector<AlignedBytes>> draw_bridge_inputs(const BridgeSpec& spec,
                                                     uint64_t seed) {
  for (const BridgeArray& array : spec.inputs) {
    const bool whole = array.dtype == Dtype::i8 || array.dtype == Dtype::i16 ||
                       array.dtype == Dtype::i32 || array.dtype == Dtype::i64 ||
                       array.dtype == Dtype::u8;
    if (!whole || array.range) continue;
    return invalid("bridge",
                   "an integer input must come from --inputs or have a range "
                   "in the file of shapes, found neither for {}",
                   in_quotes(array.name));
  }
  std::vector<AlignedBytes> out;
  for (size_t i = 0; i < spec.inputs.size(); ++i) {
    out.emplace_back(run::bridge_bytes(spec.inputs[i]));
    draw(spec.inputs[i], out.back(), seed,
         static_cast<request::Stream>(kFirstStream + i));
  }
  return out;
}

}  // namespace tessera::cli
