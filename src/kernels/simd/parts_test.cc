// kernels/simd/parts_test.cc: compares stage.h and product.h on every ISA of
// this machine with plain loops: rows of odd lengths in buffers of the exact
// size, and whole numbers, so that all results are exact.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "base/float16.h"
#include "tests/simd_parts.h"

namespace tessera::kernels {
namespace {

constexpr Dtype kDtypes[] = {Dtype::f32, Dtype::bf16, Dtype::f16};
constexpr int64_t kDims[] = {1, 3, 4, 7, 8, 15, 16, 17, 31, 40};
constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// A number from -31 to 31. Every dtype holds it, and half of it.
float whole(int64_t i) { return static_cast<float>((i * 37 + 11) % 63 - 31); }

// Rows of numbers stored in a dtype.
class Rows {
 public:
  Rows(Dtype dtype, int64_t count)
      : dtype_(dtype), bytes_(static_cast<size_t>(count * byte_width(dtype))) {}

  void set(int64_t i, float x) {
    if (dtype_ == Dtype::f32) return put(i, std::bit_cast<uint32_t>(x));
    put(i, dtype_ == Dtype::bf16 ? to_bf16(x) : to_f16(x));
  }
  float get(int64_t i) const {
    if (dtype_ == Dtype::f32) return at<float>(i);
    const auto bits = at<uint16_t>(i);
    return dtype_ == Dtype::bf16 ? bf16_to_float(bits) : f16_to_float(bits);
  }
  Dtype dtype() const { return dtype_; }
  void* data() { return bytes_.data(); }

 private:
  template <class T>
  void put(int64_t i, T value) {
    std::memcpy(bytes_.data() + i * static_cast<int64_t>(sizeof(T)), &value,
                sizeof(T));
  }
  template <class T>
  T at(int64_t i) const {
    T value;
    std::memcpy(&value, bytes_.data() + i * static_cast<int64_t>(sizeof(T)),
                sizeof(T));
    return value;
  }

  Dtype dtype_;
  std::vector<uint8_t> bytes_;
};

Rows rows_of(Dtype dtype, int64_t count) {
  Rows out(dtype, count);
  for (int64_t i = 0; i < count; ++i) out.set(i, whole(i));
  return out;
}

class SimdParts : public ::testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    const std::vector<Isa> here = machine_isas();
    if (std::find(here.begin(), here.end(), GetParam()) == here.end()) {
      GTEST_SKIP() << "this machine has no " << to_string(GetParam());
    }
    parts_ = testing::simd_parts(GetParam());
  }

  testing::SimdParts parts_;
};
INSTANTIATE_TEST_SUITE_P(
    Isas, SimdParts, ::testing::Values(Isa::portable, Isa::avx2, Isa::avx512),
    [](const auto& of) { return std::string(to_string(of.param)); });

TEST_P(SimdParts, ARowIsStagedAsFloats) {
  for (const Dtype dtype : kDtypes) {
    for (const int64_t dim : kDims) {
      Rows row = rows_of(dtype, dim);
      std::vector<float> to(static_cast<size_t>(dim));
      parts_.stage(row.data(), dtype, dim, to.data());
      for (int64_t i = 0; i < dim; ++i) {
        EXPECT_EQ(to[static_cast<size_t>(i)], whole(i)) << to_string(dtype);
      }
    }
  }
}

TEST_P(SimdParts, OneNumberThatIsNotFiniteIsSeen) {
  for (const Dtype dtype : kDtypes) {
    for (const int64_t dim : kDims) {
      Rows row = rows_of(dtype, dim);
      EXPECT_TRUE(parts_.is_finite(row.data(), dtype, dim));
      for (const float odd : {kInf, -kInf, kNan}) {
        for (const int64_t at : {int64_t{0}, dim / 2, dim - 1}) {
          Rows other = row;
          other.set(at, odd);
          EXPECT_FALSE(parts_.is_finite(other.data(), dtype, dim))
              << to_string(dtype) << " " << at << " of " << dim;
        }
      }
    }
  }
}

// Rows that are absent or not live are zeros.
TEST_P(SimdParts, RowsArePackedIntoLanes) {
  const int64_t lanes = 2 * parts_.lanes;
  for (const Dtype dtype : kDtypes) {
    for (const int64_t dim : kDims) {
      const int64_t stride = dim + 3;
      for (const int64_t rows : {int64_t{1}, parts_.lanes - 1, lanes}) {
        Rows data = rows_of(dtype, (rows - 1) * stride + dim);
        std::vector<uint8_t> live(static_cast<size_t>(rows), 1);
        for (size_t r = 0; r < live.size(); r += 3) live[r] = 0;
        for (const bool all : {false, true}) {
          const uint8_t* const some = all ? nullptr : live.data();
          std::vector<float> to(static_cast<size_t>(dim * lanes), kNan);
          parts_.pack(data.data(), dtype, stride, rows, some, dim, lanes,
                      to.data());
          for (int64_t i = 0; i < dim * lanes; ++i) {
            const int64_t r = i % lanes, d = i / lanes;
            const bool there = r < rows && (!some || some[r] != 0);
            ASSERT_EQ(to[static_cast<size_t>(i)],
                      there ? whole(r * stride + d) : 0)
                << to_string(dtype) << " row " << r << ", number " << d;
          }
        }
      }
    }
  }
}

// Memory between rows stays as it was.
TEST_P(SimdParts, LanesAreUnpackedIntoRows) {
  const int64_t lanes = 2 * parts_.lanes;
  for (const Dtype dtype : kDtypes) {
    for (const int64_t dim : kDims) {
      const int64_t stride = dim + 3;
      std::vector<float> from, factor;
      for (int64_t i = 0; i < dim * lanes; ++i) from.push_back(whole(i));
      for (int64_t r = 0; r < lanes; ++r) factor.push_back(r % 2 ? 2 : 0.5F);
      for (const int64_t rows : {int64_t{1}, parts_.lanes - 1, lanes}) {
        const int64_t count = (rows - 1) * stride + dim;
        Rows data(dtype, count);
        for (int64_t i = 0; i < count; ++i) data.set(i, 40);
        parts_.unpack(from.data(), lanes, factor.data(), rows, dim, data.data(),
                      dtype, stride);
        for (int64_t i = 0; i < count; ++i) {
          const int64_t r = i / stride, d = i % stride;
          const float want =
              d < dim ? whole(d * lanes + r) * factor[static_cast<size_t>(r)]
                      : 40;
          ASSERT_EQ(data.get(i), want)
              << to_string(dtype) << " row " << r << ", number " << d;
        }
      }
    }
  }
}

// Rounds to the nearest 16-bit number, ties to even.
TEST_P(SimdParts, NumbersAreRounded) {
  struct Case {
    Dtype dtype;
    float from, to;
  };
  const float factor[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  for (const Case& c : {Case{Dtype::bf16, 1 + 0x1p-8F, 1},
                        {Dtype::bf16, 1 + 0x3p-8F, 1 + 0x1p-6F},
                        {Dtype::bf16, 1 + 0x1p-8F + 0x1p-20F, 1 + 0x1p-7F},
                        {Dtype::bf16, -kInf, -kInf},
                        {Dtype::f16, 1 + 0x1p-11F, 1},
                        {Dtype::f16, 1 + 0x3p-11F, 1 + 0x1p-9F},
                        {Dtype::f16, 0x1p-25F, 0},
                        {Dtype::f16, 0x3p-25F, 0x1p-23F},
                        {Dtype::f16, 65520, kInf}}) {
    std::vector<float> from(static_cast<size_t>(parts_.lanes), c.from);
    Rows row(c.dtype, 1);
    parts_.unpack(from.data(), parts_.lanes, factor, 1, 1, row.data(), c.dtype,
                  1);
    EXPECT_EQ(row.get(0), c.to) << to_string(c.dtype) << " " << c.from;
    std::fill(from.begin(), from.end(), kNan);
    parts_.unpack(from.data(), parts_.lanes, factor, 1, 1, row.data(), c.dtype,
                  1);
    EXPECT_TRUE(std::isnan(row.get(0))) << to_string(c.dtype);
  }
}

TEST_P(SimdParts, ProductsAreThoseOfPlainLoops) {
  const int64_t width = 2 * parts_.lanes;
  for (const bool by_columns : {false, true}) {
    for (int64_t rows = 0; rows <= 2 * parts_.rows + 1; ++rows) {
      for (const int64_t n : {0, 1, 5, 16, 33}) {
        const int64_t lda = (by_columns ? rows : n) + 2;
        std::vector<float> a, b, c;
        // One row more than is read: no address of an empty range is out of
        // bounds.
        for (int64_t i = 0; i < ((by_columns ? n : rows) + 1) * lda; ++i) {
          a.push_back(whole(i));
        }
        for (int64_t i = 0; i < (n + 1) * width; ++i) b.push_back(whole(3 * i));
        for (int64_t i = 0; i < rows * width; ++i) c.push_back(whole(5 * i));
        std::vector<float> got = c;
        parts_.multiply(a.data(), lda, by_columns, b.data(), n, rows,
                        got.data());
        for (int64_t i = 0; i < rows * width; ++i) {
          const int64_t m = i / width, lane = i % width;
          float want = c[static_cast<size_t>(i)];
          for (int64_t k = 0; k < n; ++k) {
            const int64_t at = by_columns ? k * lda + m : m * lda + k;
            want += a[static_cast<size_t>(at)] *
                    b[static_cast<size_t>(k * width + lane)];
          }
          ASSERT_EQ(got[static_cast<size_t>(i)], want)
              << rows << " rows of " << n << ", at " << m << ", " << lane;
        }
      }
    }
  }
}

}  // namespace
}  // namespace tessera::kernels
