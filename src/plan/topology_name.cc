// plan/topology_name.cc: reads the sides in a target's name.
#include "plan/topology_name.h"

#include <algorithm>
#include <charconv>

#include "base/fail.h"
#include "base/text.h"

namespace tessera::plan {
namespace {

constexpr int64_t kMaxChips = (int64_t{1} << 31) - 1;

// Nothing if `text` is not a number; 0 if the number overflows int64.
std::optional<int64_t> side_of(std::string_view text) {
  int64_t side = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, side);
  if (stop != end || error == std::errc::invalid_argument) return {};
  return error == std::errc() ? side : 0;
}

struct Sides {
  int count = 0;
  int64_t chips = 1;
  bool are_numbers = true;
  bool are_counts = true;  // every side that is a number is valid
};

Sides read_sides(std::string_view text) {
  Sides out;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find('x', at), text.size());
    const auto side = side_of(text.substr(at, end - at));
    ++out.count;
    out.are_numbers = out.are_numbers && side.has_value();
    if (side && (*side < 1 || *side > kMaxChips / out.chips)) {
      out.are_counts = false;
    } else if (side) {
      out.chips *= *side;
    }
    at = end + 1;
  }
  return out;
}

// The sides as libtpu finds them: "v4=2x2x4_twisted" is a name too.
std::string_view sides_of(std::string_view target) {
  for (const std::string_view end : {"_twisted", "_untwisted"}) {
    if (!target.ends_with(end)) continue;
    target.remove_suffix(end.size());
    break;
  }
  const size_t before = target.find_last_of("=_:");
  return before == target.npos ? "" : target.substr(before + 1);
}

}  // namespace

std::optional<int64_t> chips_of(std::string_view target) {
  const size_t colon = target.find(':');
  if (colon == target.npos) return {};
  const Sides sides = read_sides(target.substr(colon + 1));
  const bool is_read = sides.are_numbers && sides.are_counts &&
                       (sides.count == 2 || sides.count == 3);
  return is_read ? std::optional(sides.chips) : std::nullopt;
}

Result<void> check_sides(std::string_view where, std::string_view target) {
  if (read_sides(sides_of(target)).are_counts) return {};
  return invalid(where,
                 "sides of a target must be from 1 on, of at most {} chips, "
                 "found {}",
                 kMaxChips, in_quotes(target));
}

}  // namespace tessera::plan
