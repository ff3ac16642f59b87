// schedule/stalls.cc: compares libtpu's last schedule with its final bundles.
#include "schedule/stalls.h"

#include <algorithm>
#include <charconv>
#include <unordered_map>
#include <unordered_set>

#include "base/fail.h"

namespace tessera::schedule {
namespace {

constexpr std::string_view kKeyEnd = "= control target key end";

// Where a region starts in both dumps.
struct Start {
  int64_t final = 0;
  int64_t packed = 0;
};

// The address in "   0x1a LB: >> { ...", if the line starts a bundle.
std::optional<int64_t> address_of(std::string_view line) {
  line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return {};
  std::string_view rest = line.substr(0, colon);
  if (rest.starts_with("0x")) rest.remove_prefix(2);
  int64_t value = 0;
  const auto [end, error] =
      std::from_chars(rest.data(), rest.data() + rest.size(), value, 16);
  if (error != std::errc()) return {};
  rest.remove_prefix(static_cast<size_t>(end - rest.data()));
  const bool label = std::all_of(rest.begin(), rest.end(), [](char c) {
    return c == ' ' || (c >= 'A' && c <= 'Z');
  });
  return label ? std::optional(value) : std::nullopt;
}

// Calls `found` with each number that follows `key`.
template <class Found>
void each_number(std::string_view line, std::string_view key, Found found) {
  for (size_t at = line.find(key); at != std::string_view::npos;
       at = line.find(key, at + 1)) {
    const std::string_view rest = line.substr(at + key.size());
    int64_t number = 0;
    const auto parsed =
        std::from_chars(rest.data(), rest.data() + rest.size(), number);
    if (parsed.ec == std::errc()) found(number);
  }
}

struct Packed {
  int64_t bundles = 0;
  std::unordered_map<int64_t, int64_t> starts;  // by region number
};

Packed read_packed(std::string_view text) {
  Packed out;
  const size_t key = text.find(kKeyEnd);
  if (key == std::string_view::npos) return out;
  text.remove_prefix(key + kKeyEnd.size());
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    // A comment may look like an address, but addresses have no gaps.
    if (address_of(line) == out.bundles) ++out.bundles;
    for (std::string_view words :
         {"Start region ", "Start/End empty region "}) {
      each_number(line, words, [&](int64_t number) {
        out.starts.emplace(number, std::max<int64_t>(out.bundles - 1, 0));
      });
    }
  }
  return out;
}

// The starts found in both dumps, in order, with both ends of the kernel.
std::vector<Start> common_starts(const Packed& packed,
                                 const KernelText& kernel) {
  const auto size = static_cast<int64_t>(kernel.bundles.size());
  std::vector<Start> out = {{0, 0}, {size, packed.bundles}};
  for (int64_t b = 0; b < size; ++b) {
    for (int64_t number : kernel.bundles[static_cast<size_t>(b)].starts) {
      const auto known = packed.starts.find(number);
      if (known != packed.starts.end()) out.push_back({b, known->second});
    }
  }
  std::sort(out.begin(), out.end(), [](const Start& a, const Start& b) {
    return std::pair(a.final, a.packed) < std::pair(b.final, b.packed);
  });
  return out;
}

// The final bundles do not note the regions that start at the exit, such as the
// code after all work that a second core skips. Those that jumps lead to are
// taken from the packed bundles.
void take_exit(const Packed& packed, KernelText& kernel) {
  if (!kernel.exits) return;
  std::unordered_set<int64_t> known;
  for (const Bundle& b : kernel.bundles) {
    known.insert(b.starts.begin(), b.starts.end());
  }
  for (const Bundle& b : kernel.bundles) {
    if (!b.branch || known.contains(b.branch->region)) continue;
    const auto start = packed.starts.find(b.branch->region);
    if (start == packed.starts.end() || start->second + 1 != packed.bundles) {
      continue;
    }
    known.insert(b.branch->region);
    kernel.bundles.back().starts.push_back(b.branch->region);
  }
}

}  // namespace

Result<void> add_stalls(std::string_view text, KernelText& kernel) {
  const Packed packed = read_packed(text);
  if (packed.bundles == 0) {
    return invalid("schedule",
                   "packed bundles must hold a bundle behind their key of "
                   "labels, found none");
  }
  take_exit(packed, kernel);
  const std::vector<Start> starts = common_starts(packed, kernel);
  for (size_t i = 1; i < starts.size(); ++i) {
    const Start& from = starts[i - 1];
    const Start& to = starts[i];
    if (to.packed < from.packed) {
      return invalid("schedule",
                     "both dumps of a kernel must have its regions in one "
                     "order, found another at bundle {:#x}",
                     to.final);
    }
    const int64_t length = to.final - from.final;
    const int64_t stalls = to.packed - from.packed - length;
    if (length == 0 || stalls <= 0) continue;
    kernel.bundles[static_cast<size_t>(from.final + length / 2)].stalls +=
        stalls;
  }
  return {};
}

}  // namespace tessera::schedule
