// mask/key_arrays.h: for one batch row, the ids and ranks of each key.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera::mask {

struct KeyArrays {
  std::vector<int32_t> segment;        // index of the key's run of equal ids
  std::vector<int32_t> document_rank;  // index of the key in its document
  std::vector<int32_t> segment_rank;   // index of the key in its segment
};

KeyArrays key_arrays(const int32_t* ids, int64_t kv_len);

}  // namespace tessera::mask
