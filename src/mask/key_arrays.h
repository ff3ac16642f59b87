// mask/key_arrays.h: what tells the keys of one batch row apart, an entry a
// key.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera::mask {

struct KeyArrays {
  std::vector<int32_t> segment;        // its run of equal ids
  std::vector<int32_t> document_rank;  // its place in its document
  std::vector<int32_t> segment_rank;   // its place in its segment
};

KeyArrays key_arrays(const int32_t* ids, int64_t kv_len);

}  // namespace tessera::mask
