// request/random_inputs.cc: hashes a counter and sums eight uniform numbers
// from the hashes. The result is near normal, within 4.9 of 0, and an exact
// integer until one multiplication, so every compiler gives the same bits.
#include "request/random_inputs.h"

#include <cmath>

#include "base/float16.h"

namespace tessera::request {
namespace {

// A bijection of 64 bits in which every input bit reaches every output bit.
uint64_t mix(uint64_t x) {
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93u;
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93u;
  return x ^ x >> 32;
}

// The sum of the four 16-bit parts of x.
int64_t sum_of_parts(uint64_t x) {
  constexpr uint64_t kEven = 0x0000ffff0000ffffu;
  const uint64_t two = (x & kEven) + (x >> 16 & kEven);
  return static_cast<int64_t>((two & 0xffffffffu) + (two >> 32));
}

class Generator {
 public:
  Generator(uint64_t seed, Stream stream)
      : key_(mix(mix(seed) + static_cast<uint64_t>(stream))) {}

  float operator()(uint64_t i) const {
    constexpr uint64_t kStep = 0x9e3779b97f4a7c15u;  // odd: a bijection of i
    const int64_t sum = sum_of_parts(mix(key_ + 2 * i * kStep)) +
                        sum_of_parts(mix(key_ + (2 * i + 1) * kStep));
    return static_cast<float>(sum - kMean) * unit_;
  }

 private:
  static constexpr int64_t kMean = 4 * 0xffff;  // of eight parts
  uint64_t key_;
  // A part has the variance (2^32 - 1) / 12.
  float unit_ = static_cast<float>(1 / std::sqrt(8 * 4294967295.0 / 12));
};

template <class T, class Convert>
void fill(const MutableTensorView& t, const Generator& random,
          Convert convert) {
  uint64_t i = 0;
  for (int64_t b = 0; b < t.batch; ++b) {
    for (int64_t h = 0; h < t.heads; ++h) {
      for (int64_t s = 0; s < t.tokens; ++s) {
        T* row = static_cast<T*>(t.data) + b * t.batch_stride +
                 h * t.head_stride + s * t.token_stride;
        for (int64_t d = 0; d < t.dim; ++d) row[d] = convert(random(i++));
      }
    }
  }
}

}  // namespace

float random_normal(uint64_t seed, Stream stream, uint64_t i) {
  return Generator(seed, stream)(i);
}

void fill_random(const MutableTensorView& tensor, uint64_t seed,
                 Stream stream) {
  const Generator random(seed, stream);
  if (tensor.dtype == Dtype::f32) {
    fill<float>(tensor, random, [](float x) { return x; });
  } else if (tensor.dtype == Dtype::bf16) {
    fill<uint16_t>(tensor, random, [](float x) { return to_bf16(x); });
  } else {
    fill<uint16_t>(tensor, random, [](float x) { return to_f16(x); });
  }
}

void fill_random(std::span<float> values, uint64_t seed, Stream stream) {
  const Generator random(seed, stream);
  for (size_t i = 0; i < values.size(); ++i) values[i] = random(i);
}

void fill_inputs(AttentionData& d, uint64_t seed) {
  fill_random(d.q.view(), seed, Stream::q);
  fill_random(d.k.view(), seed, Stream::k);
  fill_random(d.v.view(), seed, Stream::v);
  if (d.backward) fill_random(d.dout.view(), seed, Stream::dout);
}

}  // namespace tessera::request
