// plan/chips.cc: each TPU's memory and matrix unit.
#include <algorithm>

#include "base/fail.h"
#include "base/text.h"
#include "plan/generation.h"
#include "plan/topology_name.h"
#include "tessera/machine.h"

namespace tessera {
namespace {

constexpr int64_t kKiB = int64_t{1} << 10;
constexpr int64_t kMiB = int64_t{1} << 20;
constexpr int64_t kGiB = int64_t{1} << 30;

// Sources. HBM of a chip, the matrix unit (256 x 256 from v6e on, 128 x 128
// before): docs.cloud.google.com/tpu/docs, the page of each version. Devices of
// a chip and core memory: docs.jax.dev/en/latest/pallas/tpu/hardware.html.
// Kinds: libtpu 0.0.51's topologies.
// Room is what libtpu 0.0.51 grants a device, from its error "Used X of Y hbm",
// found to a KiB by bisection over the size of an array (a test compiles both
// sides): HBM less what libtpu reserves. On v4 that is more than half, as two
// devices share a chip's memory. On v5p libtpu grants more than the page's 95.
// Core memory is VMEM, on v4 CMEM. It is 0 on v5p: its 64 MiB were never
// observed to hold the data that this library's programs carry.
constexpr Chip kChips[] = {
    {"v4", 32 * kGiB, 2, 15 * kGiB + 254 * kMiB + 480 * kKiB, 128 * kMiB, 512,
     "v4:2x2x1", 128, "TPU v4"},
    {"v5e", 16 * kGiB, 1, 16 * kGiB - 258 * kMiB, 128 * kMiB, 512, "v5e:2x2",
     128, "TPU v5 lite"},
    {"v5p", 95 * kGiB, 1, 96 * kGiB - 279 * kMiB, 0, 32, "v5p:2x2x1", 128,
     "TPU v5"},
    {"v6e", 32 * kGiB, 1, 31 * kGiB + 248 * kMiB, 128 * kMiB, 32, "v6e:1x1",
     256, "TPU v6 lite"},
    {"tpu7x", 192 * kGiB, 2, 95 * kGiB - 268 * kMiB, 64 * kMiB, 32,
     "tpu7x:2x2x1", 256, "TPU7x"}};

std::string_view without_number(std::string_view device) {
  const size_t space = device.rfind(' ');
  const bool numbered =
      space + 1 < device.size() &&
      device.find_first_not_of("0123456789", space + 1) == device.npos;
  return numbered ? device.substr(0, space) : device;
}

}  // namespace

std::span<const Chip> chips() { return kChips; }

std::string chip_names() {
  std::string out;
  for (const Chip& c : kChips) {
    out += fmt::format("{}{}", out.empty() ? "" : ", ", c.name);
  }
  return out;
}

Result<void> plan::check_generation(std::string_view where,
                                    std::string_view name) {
  if (std::ranges::find(kChips, name, &Chip::name) != std::end(kChips)) {
    return {};
  }
  return invalid(where, "generation must be one of {}, found {}", chip_names(),
                 in_quotes(name, 40));
}

Result<Chip> find_chip(std::string_view name) {
  const std::string_view chip = name.substr(0, name.find(':'));
  const auto* const found = std::ranges::find(kChips, chip, &Chip::name);
  if (found != std::end(kChips)) {
    if (auto e = plan::check_sides("fit", name); !e) return e.error();
    return *found;
  }
  return invalid("fit", "a chip must be one of {}, found {}", chip_names(),
                 in_quotes(name, 40));
}

std::optional<Chip> chip_of_device(std::string_view device) {
  const std::string_view kind = without_number(device);
  const auto* const found = std::ranges::find(kChips, kind, &Chip::kind);
  if (found == std::end(kChips)) return {};
  return *found;
}

}  // namespace tessera
