// base/safetensors.h: the .safetensors container: named arrays in one file.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/attention.h"
#include "tessera/result.h"

namespace tessera {

// `bytes` is a view without alignment into memory of the caller: copy numbers
// out.
struct Tensor {
  Dtype dtype = Dtype::f32;
  std::vector<int64_t> shape;
  std::string_view bytes;
};

// The dtype whose to_string() is `name`.
std::optional<Dtype> find_dtype(std::string_view name);

struct Safetensors {
  std::map<std::string, Tensor, std::less<>> tensors;
  std::map<std::string, std::string, std::less<>> metadata;

  // If there is no such tensor, the error lists those that exist.
  Result<Tensor> find(std::string_view name) const;
};

// The header of a file: its tensors and where their bytes are.
struct SafetensorsHeader {
  struct Entry {
    Dtype dtype = Dtype::f32;
    std::vector<int64_t> shape;
    int64_t begin = 0, end = 0;  // bytes of the file
  };
  std::map<std::string, Entry, std::less<>> tensors;
  std::map<std::string, std::string, std::less<>> metadata;
};

inline constexpr int64_t kSafetensorsStart = 8;
// Bytes of the header, from the start of a file of `size` bytes. `start` holds
// the first kSafetensorsStart bytes, or the whole file if that is shorter.
Result<int64_t> safetensors_header_size(std::string_view start, int64_t size);
// The header of a file of `size` bytes. Tensors must cover the data without
// overlap or hole, names must differ.
Result<SafetensorsHeader> parse_safetensors_header(std::string_view start,
                                                   int64_t size);

// Parses a whole file. The tensors are views into `bytes`, which must outlive
// them.
Result<Safetensors> parse_safetensors(std::string_view bytes);

// Tensors are laid out by width, widest first, then by name, so that each is
// aligned to its own width.
Result<std::string> write_safetensors(const Safetensors& file);

// The values of an I32 tensor, or of an I64 one whose values fit int32.
Result<std::vector<int32_t>> int32_values(const Tensor& tensor,
                                          std::string_view name);

}  // namespace tessera
