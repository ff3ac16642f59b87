// tests/fuzz/schedule_fuzz.cc: any bytes are either a kernel's dump, whose
// regions have each bundle once, or an error.
//
// Input: the bundles, a line with only '%', the slots, another such line, and
// the packed bundles.
#include <algorithm>

#include "schedule/predict.h"
#include "schedule/stalls.h"
#include "tests/fuzz/must.h"

using namespace tessera;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t cut = std::min(input.find("\n%\n"), input.size());
  const std::string_view behind = input.substr(std::min(cut + 3, input.size()));
  const size_t second = std::min(behind.find("\n%\n"), behind.size());
  auto text = schedule::parse_kernel("k", input.substr(0, cut),
                                     behind.substr(0, second));
  if (!text) {
    must(text.error().message.starts_with("[schedule] "));
    return 0;
  }
  const auto bundles = static_cast<int64_t>(text->bundles.size());
  const auto stalled = schedule::add_stalls(
      behind.substr(std::min(second + 3, behind.size())), *text);
  must(stalled.ok() || stalled.error().message.starts_with("[schedule] "));
  const auto profile =
      schedule::profile_kernel(std::move(*text), *schedule::find_chip("v6e"));
  if (!profile) {
    must(profile.error().message.starts_with("[schedule] "));
    return 0;
  }
  int64_t own = 0;
  for (const schedule::RegionCost& c : profile->own) own += c.bundles;
  must(own == bundles && profile->whole[0].bundles == bundles);
  for (size_t r = 1; r < profile->tree.regions.size(); ++r) {
    const schedule::Region& region = profile->tree.regions[r];
    const schedule::Region& outer =
        profile->tree.regions[static_cast<size_t>(region.parent)];
    must(region.begin < region.end && outer.begin <= region.begin &&
         region.end <= outer.end);
  }
  const schedule::Chip chip = *schedule::find_chip("v6e");
  for (const auto& counts :
       {std::optional<schedule::PlanCounts>(),
        std::optional<schedule::PlanCounts>({10, 4, 6, 4, 4})}) {
    const auto p = schedule::predict(*profile, chip, {}, counts);
    must(p.ok() && p->regions.size() == profile->tree.regions.size());
    must(p->cycles.has_value() == p->unknown.empty());
    must(p->cycles_loops_once >= 0);
  }
  return 0;
}
