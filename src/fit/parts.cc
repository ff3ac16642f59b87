// fit/parts.cc: the kind of each array by its name, and its bytes.
#include "fit/parts.h"

#include <algorithm>

#include "base/fail.h"
#include "base/integers.h"

namespace tessera::fit {
namespace {

// More than any device has. Even if tiles pad an array to a thousand times as
// much, 64 bits hold its bytes.
constexpr double kMaxBytes = static_cast<double>(int64_t{1} << 50);

double plain_bytes(Dtype dtype, std::span<const int64_t> dims) {
  auto out = static_cast<double>(byte_width(dtype));
  for (const int64_t d : dims) out *= static_cast<double>(d);
  return out;
}

bool is_any(std::string_view name,
            std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, name) != names.end();
}

}  // namespace

MemoryKind kind_of(std::string_view name) {
  if (is_any(name, {"q", "k", "v", "sink_logits"})) return MemoryKind::input;
  if (is_any(name, {"out", "entropy"})) return MemoryKind::output;
  if (name == "lse") return MemoryKind::lse;
  if (is_any(name, {"dout", "dlse", "dq", "dk", "dv", "dsink_logits"})) {
    return MemoryKind::gradient;
  }
  return MemoryKind::metadata;
}

bool is_residual(std::string_view name) {
  return is_any(name, {"q", "k", "v", "sink_logits", "out", "lse"});
}

Result<void> check_size(std::string_view name, Dtype dtype,
                        std::span<const int64_t> dims) {
  const double plain = plain_bytes(dtype, dims);
  if (plain <= kMaxBytes) return {};
  return over_limit("fit",
                    "an array must be at most {:.4g} bytes, found {:.4g} for "
                    "{}",
                    kMaxBytes, plain, name);
}

Result<MemoryPart> part_of(std::string name, MemoryKind kind, Dtype dtype,
                           std::span<const int64_t> dims) {
  if (auto e = check_size(name, dtype, dims); !e) return e.error();
  MemoryPart out;
  out.bytes = device_bytes(dtype, dims);
  out.padding = out.bytes - static_cast<int64_t>(plain_bytes(dtype, dims));
  out.least = out.bytes;
  out.residual = is_residual(name);
  out.kind = kind;
  out.name = std::move(name);
  return out;
}

MemoryPart table_of(const Chip& chip, size_t outputs) {
  constexpr int64_t kPointer = 4;
  const auto bytes =
      round_up(kPointer * static_cast<int64_t>(outputs), chip.table);
  return {"table of results", MemoryKind::metadata, bytes};
}

}  // namespace tessera::fit
