// tests/fuzz/arrow_lies.h: shared by the fuzzers of Arrow streams: the input,
// and false fields in the arrays that are made from it.
#pragma once

#include <cstdint>
#include <string>

#include "tests/arrow_maker.h"

namespace tessera::fuzz {

// Reads the input byte by byte, then zeros.
class Bytes {
 public:
  Bytes(const uint8_t* data, size_t size) : data_(data), size_(size) {}

  uint8_t one() { return at_ < size_ ? data_[at_++] : uint8_t{0}; }
  int64_t below(int64_t n) { return one() % n; }
  bool over() const { return at_ >= size_; }
  // `n` numbers of `width` bytes each, most of them small.
  std::string numbers(int64_t n, int64_t width) {
    std::string out(static_cast<size_t>(n * width), '\0');
    for (int64_t i = 0; i < n; ++i) {
      const uint8_t what = one();
      const auto at = static_cast<size_t>(i * width);
      out[at] = static_cast<char>(what);
      if (what < 0xf0) continue;
      for (int64_t b = 0; b < width; ++b) {
        out[at + static_cast<size_t>(b)] = static_cast<char>(one());
      }
    }
    return out;
  }

 private:
  const uint8_t* data_;
  size_t size_, at_ = 0;
};

// Makes one field of the array false, in a way that a reader can detect.
inline void spoil(Bytes& in, ArrowArray& array) {
  constexpr int64_t kFar[] = {-1, INT64_MIN, INT64_MAX, int64_t{1} << 50};
  if (array.n_children > 0 && array.children[0] != nullptr &&
      in.below(2) == 1) {
    spoil(in, *array.children[in.below(array.n_children)]);
    return;
  }
  switch (in.below(9)) {
    case 0:
      array.length = kFar[in.below(4)];
      break;
    case 1:
      array.offset = kFar[in.below(4)];
      break;
    case 2:
      array.null_count = kFar[in.below(4)];
      break;
    case 3:
      array.n_buffers = in.below(2) - 1;
      break;
    case 4:
      array.n_children = in.below(2) == 0 ? -1 : array.n_children + 1;
      break;
    case 5:
      array.buffers = nullptr;
      break;
    case 6:
      if (array.n_buffers > 0)
        array.buffers[in.below(array.n_buffers)] = nullptr;
      break;
    case 7:
      if (array.n_children > 0) array.children[0] = nullptr;
      break;
    default:
      array.dictionary = nullptr;
  }
}

}  // namespace tessera::fuzz
