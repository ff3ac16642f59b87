// cli/export/layouts.h: a plan's other layouts as named arrays.
#pragma once

#include <list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/safetensors.h"
#include "cli/export/flags.h"

namespace tessera::cli {

// Named arrays for a .safetensors file; owns their bytes.
class NamedArrays {
 public:
  using Shape = std::vector<int64_t>;

  template <class T>
  void add(const std::string& name, Dtype dtype, Shape shape,
           const std::vector<T>& values) {
    add_bytes(name, dtype, std::move(shape),
              std::string(bytes_of(std::span<const T>(values))));
  }
  void add_bytes(const std::string& name, Dtype dtype, Shape shape,
                 std::string bytes) {
    bytes_.push_back(std::move(bytes));
    file_.tensors[name] = {dtype, std::move(shape), bytes_.back()};
  }
  const Safetensors& file() const { return file_; }

 private:
  Safetensors file_;
  std::list<std::string>
      bytes_;  // a list, since file_ has views of the strings
};

inline int64_t count(const auto& values) {
  return static_cast<int64_t>(values.size());
}

struct ExportLayout {
  std::string_view name;
  Result<void> (*add)(const Batch& batch, const ExportFlags& flags,
                      NamedArrays& out);
};
std::span<const ExportLayout> export_layouts();

}  // namespace tessera::cli
