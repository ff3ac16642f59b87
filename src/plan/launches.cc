// plan/launches.cc: splits steps to fit a target's scalar memory.
#include <algorithm>
#include <array>

#include "base/fail.h"
#include "base/integers.h"
#include "base/text.h"
#include "tessera/layouts.h"

namespace tessera {
namespace {

struct Known {
  std::string_view name;
  int64_t scalar_words;
  int64_t granule;
  int64_t vector_mib;
};

// The compiler reserves part of the 1 MiB (262,144 words) of a core's scalar
// memory. With any number of tiles a pass, the forward kernel compiles with
// arrays of `scalar_words` in granules of 128, and fails with one granule more
// (a test compiles both sides). `vector_mib` is the limit that the compiler's
// error states for a kernel that is too large.
constexpr std::array<Known, 5> kKnown = {{{"v4", 261760, 128, 16},
                                          {"v5e", 261376, 128, 128},
                                          {"v5p", 261376, 128, 64},
                                          {"v6e", 261376, 128, 128},
                                          {"tpu7x", 261376, 128, 64}}};

}  // namespace

Result<Target> find_target(std::string_view name) {
  std::string names;
  for (const Known& k : kKnown) {
    if (k.name == name) {
      return Target{std::string(name), k.scalar_words, k.granule,
                    k.vector_mib << 20};
    }
    names += (names.empty() ? "" : ", ") + std::string(k.name);
  }
  return invalid("target",
                 "target must be one of those whose memory is known ({}), "
                 "found {}",
                 names, in_quotes(name, 40));
}

int64_t scalar_words(const Target& target,
                     std::initializer_list<int64_t> words) {
  int64_t sum = 0;
  for (int64_t n : words) sum += round_up(n, target.granule);
  return sum;
}

int64_t Launch::words(const Target& target) const {
  const int64_t lists = end_list - first_list;
  return scalar_words(target, {end - begin, lists + 1, lists + 2});
}

Result<std::vector<Launch>> split_launches(const Steps& steps,
                                           const Target& target) {
  const std::vector<uint32_t>& range = steps.range;
  if (range.empty() || range.front() != 0 ||
      range.back() != steps.steps.size() ||
      !std::is_sorted(range.begin(), range.end())) {
    return invalid("launches", "ranges must rise from 0 to {} steps, found {}",
                   steps.steps.size(),
                   range.empty() ? "none" : fmt::to_string(range.back()));
  }
  std::vector<Launch> out;
  Launch open;
  for (size_t l = 0; l + 1 < range.size(); ++l) {
    const auto list = static_cast<int64_t>(l);
    int64_t row_begin = range[l];
    for (int64_t at = range[l]; at < range[l + 1]; ++at) {
      if (!steps.steps[static_cast<size_t>(at)].last()) {
        if (at + 1 < range[l + 1]) continue;
        return invalid("launches",
                       "a list must end with a step marked last, found step {} "
                       "for list {}",
                       at, list);
      }
      Launch wider = open;
      wider.end = at + 1;
      wider.end_list = list + 1;
      if (wider.words(target) > target.scalar_words && open.begin < open.end) {
        out.push_back(open);
        wider = {row_begin, at + 1, list, list + 1};
      }
      if (wider.words(target) > target.scalar_words) {
        return over_limit("launches",
                          "the steps of one row must fit the {} scalar words "
                          "of {}, found {} words for row {} of list {}",
                          target.scalar_words, target.name, wider.words(target),
                          steps.steps[static_cast<size_t>(at)].row(), list);
      }
      open = wider;
      row_begin = at + 1;
    }
  }
  if (open.begin < open.end) out.push_back(open);
  return out;
}

}  // namespace tessera
