// audit/tiled.cc: the old form of a sharding, XLA's own text:
//   {replicated}  {manual}  {devices=[2,1,2]<=[4] last_tile_dim_replicate}
#include <algorithm>
#include <charconv>

#include "audit/place.h"
#include "base/fail.h"
#include "base/text.h"

namespace tessera::audit {
namespace {

class Text {
 public:
  explicit Text(std::string_view rest) : rest_(rest) {}

  bool take(std::string_view word) {
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  bool done() const { return rest_.empty(); }

  // Takes `1,2,3`, up to the first non-number.
  Dims numbers() {
    Dims out;
    do {
      int64_t n = 0;
      const auto [end, error] =
          std::from_chars(rest_.data(), rest_.data() + rest_.size(), n);
      if (error != std::errc{}) break;
      rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
      out.push_back(n);
    } while (take(","));
    return out;
  }

  // Takes `manual, replicated}` and returns the count; 0 for other text.
  size_t kinds() {
    for (size_t n = 1;; ++n) {
      if (!take("manual") && !take("replicated")) return 0;
      if (take("}")) return n;
      if (!take(", ") && !take(",")) return 0;
    }
  }

 private:
  std::string_view rest_;
};

// The product; nothing if a number is below 1, there are none, or it overflows.
std::optional<int64_t> product_of(const Dims& numbers) {
  std::optional<int64_t> out = 1;
  for (const int64_t n : numbers) {
    if (n < 1 || !out) return {};
    out = product(*out, n);
  }
  return numbers.empty() ? std::nullopt : out;
}

// Whether each device appears once.
bool orders(Dims numbers, int64_t devices) {
  std::sort(numbers.begin(), numbers.end());
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (numbers[i] != static_cast<int64_t>(i)) return false;
  }
  return static_cast<int64_t>(numbers.size()) == devices;
}

// The split of each dimension; nothing if the text is of an unknown form.
std::optional<Dims> read_tiles(std::string_view whole, int64_t devices) {
  Text text(whole);
  if (!text.take("{devices=[")) return {};
  Dims tiles = text.numbers();
  if (!text.take("]") || product_of(tiles) != devices) return {};
  if (text.take("<=[")) {
    const Dims grid = text.numbers();
    if (!text.take("]") || product_of(grid) != devices) return {};
    if (text.take("T(")) {
      const Dims turned = text.numbers();
      if (!text.take(")") ||
          !orders(turned, static_cast<int64_t>(grid.size()))) {
        return {};
      }
    }
  } else if (!orders(text.numbers(), devices)) {
    return {};
  }
  size_t not_dims = 0;
  if (text.take(" last_tile_dim_replicate")) {
    not_dims = 1;
  } else if (text.take(" last_tile_dims={")) {
    not_dims = text.kinds();
    if (not_dims == 0) return {};
  }
  if (!text.take("}") || !text.done() || not_dims > tiles.size()) return {};
  tiles.resize(tiles.size() - not_dims);
  return tiles;
}

}  // namespace

Result<AuditArray> place_tiled(const Meshes& meshes, std::string_view text,
                               const Type& type, const std::string& what,
                               uint32_t line, bool may_be_manual) {
  const bool is_whole =
      text == "{replicated}" || (may_be_manual && text == "{manual}");
  auto tiles = is_whole ? Dims(type.dims.size(), 1)
                        : read_tiles(text, meshes.partitions);
  if (!tiles) {
    return invalid("audit",
                   "an mhlo.sharding must say how an array lies on {} devices, "
                   "found {} for {} on line {}",
                   meshes.partitions, in_quotes(text), what, line);
  }
  return part_of(type, *tiles, std::string(text), what, line);
}

}  // namespace tessera::audit
