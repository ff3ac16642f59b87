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

// `bytes` lies in whoever's memory, aligned to nothing: copy numbers out.
struct Tensor {
  Dtype dtype = Dtype::f32;
  std::vector<int64_t> shape;
  std::string_view bytes;
};

// The dtype that to_string() spells so.
std::optional<Dtype> find_dtype(std::string_view name);

struct Safetensors {
  std::map<std::string, Tensor, std::less<>> tensors;
  std::map<std::string, std::string, std::less<>> metadata;

  // An error names the tensors there are.
  Result<Tensor> find(std::string_view name) const;
};

// What a file begins with: its tensors and where they lie.
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
// How many bytes of a file of `size` its header takes, from the first on.
// `start` is the first kSafetensorsStart of them, or all that there are.
Result<int64_t> safetensors_header_size(std::string_view start, int64_t size);
// Of so many bytes. Tensors must cover the data without overlap or hole, names
// must differ.
Result<SafetensorsHeader> parse_safetensors_header(std::string_view start,
                                                   int64_t size);

// The whole of a file. Views into `bytes`, which must outlive them.
Result<Safetensors> parse_safetensors(std::string_view bytes);

// Tensors are laid out by width, widest first, then by name, so that each is
// aligned to its own width.
Result<std::string> write_safetensors(const Safetensors& file);

// The values of an I32 tensor, or of an I64 one whose values fit int32.
Result<std::vector<int32_t>> int32_values(const Tensor& tensor,
                                          std::string_view name);

}  // namespace tessera
