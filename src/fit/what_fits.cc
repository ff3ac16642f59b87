// fit/what_fits.cc: finds the changes that make a call fit, by trying.
#include <algorithm>
#include <functional>

#include "base/fail.h"
#include "base/integers.h"
#include "fit/parts.h"

namespace tessera {
namespace {

// The call with one size changed.
using Change = std::function<FitCall(int64_t)>;

struct Tried {
  int64_t size = 0, needed = 0;
};

// The largest size from 1 to `most` that fits; a larger one never needs less.
std::optional<Tried> largest(int64_t most, const Change& change) {
  std::optional<Tried> out;
  int64_t low = 0, high = most + 1;
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    auto budget = make_budget(change(middle));
    if (budget && budget->fits()) {
      out = {middle, budget->needed()};
      low = middle;
    } else {
      high = middle;
    }
  }
  return out;
}

// The sizes of a device's share if an axis splits `whole`: proper divisors.
std::vector<int64_t> shares_of(int64_t whole) {
  std::vector<int64_t> out;
  for (int64_t n = 1; n <= whole / 2; ++n) {
    if (whole % n == 0) out.push_back(n);
  }
  return out;
}

// The call with so many K/V heads, and as many heads for each as before.
FitCall with_kv_heads(const FitCall& asked, int64_t kv_heads) {
  FitCall out = asked;
  AttentionShape& s = out.call.shape;
  s.heads = s.heads / s.kv_heads * kv_heads;
  s.kv_heads = kv_heads;
  return out;
}

// The call with q_len, or both lengths, cut to so many tiles.
FitCall with_tiles(const FitCall& asked, int64_t tiles, bool keys_too) {
  FitCall out = asked;
  Request& r = out.request;
  const int64_t tokens =
      tiles * (keys_too ? std::max(r.tile.q, r.tile.kv) : r.tile.q);
  r.q_len = std::min(r.q_len, tokens);
  if (keys_too) r.kv_len = std::min(r.kv_len, tokens);
  return out;
}

class Remedies {
 public:
  explicit Remedies(const FitCall& asked) : asked_(asked) {}

  void tokens() {
    const Request& r = asked_.request;
    if (r.q_len == r.kv_len) {
      const int64_t side = std::max(r.tile.q, r.tile.kv);
      add("q_len and kv_len", r.q_len, side, ceil_div(r.q_len, side) - 1,
          [&](int64_t n) { return with_tiles(asked_, n, true); });
    }
    add("q_len alone, a chunk of queries at a time", r.q_len, r.tile.q,
        ceil_div(r.q_len, r.tile.q) - 1,
        [&](int64_t n) { return with_tiles(asked_, n, false); });
  }

  void heads() {
    const AttentionShape& s = asked_.call.shape;
    const int64_t group = s.heads / s.kv_heads;
    // With masks or picks by head, fewer heads would need other masks or picks.
    if (asked_.request.masks.size() > 1 || asked_.present.picks) return;
    add_share("heads of a chip (a mesh's axis head)", s.kv_heads, group,
              [&](int64_t n) { return with_kv_heads(asked_, n); });
  }

  void batch() {
    add_share("batch rows of a chip (a mesh's axis data)", asked_.request.batch,
              1, [&](int64_t n) {
                FitCall out = asked_;
                out.request.batch = n;
                return out;
              });
  }

  std::vector<Remedy> take() { return std::move(out_); }

 private:
  void add(std::string change, int64_t found, int64_t unit, int64_t most,
           const Change& of) {
    const auto best = largest(most, of);
    if (!best) return;
    out_.push_back({std::move(change), found, best->size * unit, best->needed});
  }

  // Adds a change of a size that an axis of a mesh splits.
  void add_share(std::string change, int64_t whole, int64_t unit,
                 const Change& of) {
    const std::vector<int64_t> shares = shares_of(whole);
    const auto share = [&](int64_t n) {
      return shares[static_cast<size_t>(n) - 1];
    };
    const auto best = largest(static_cast<int64_t>(shares.size()),
                              [&](int64_t n) { return of(share(n)); });
    if (!best) return;
    out_.push_back({std::move(change), whole * unit, share(best->size) * unit,
                    best->needed});
  }

  const FitCall& asked_;
  std::vector<Remedy> out_;
};

std::string gib(int64_t bytes) {
  return fmt::format("{:.2f} GiB", static_cast<double>(bytes) /
                                       static_cast<double>(int64_t{1} << 30));
}

std::string largest_parts(const PassMemory& pass) {
  constexpr size_t kNamed = 4;
  std::vector<MemoryPart> parts = pass.arguments;
  parts.insert(parts.end(), pass.outputs.begin(), pass.outputs.end());
  parts.insert(parts.end(), pass.scratch.begin(), pass.scratch.end());
  std::ranges::stable_sort(parts, std::ranges::greater{}, &MemoryPart::bytes);
  parts.resize(std::min(parts.size(), kNamed));
  std::string out;
  for (const MemoryPart& p : parts) {
    out +=
        fmt::format("{}{} {}", out.empty() ? "" : ", ", p.name, gib(p.bytes));
  }
  return out;
}

}  // namespace

std::vector<Remedy> what_fits(const FitCall& asked) {
  Remedies out(asked);
  out.tokens();
  out.heads();
  out.batch();
  return out.take();
}

Error fit::too_large(const Budget& budget,
                     const std::vector<Remedy>& remedies) {
  std::string fits;
  for (const Remedy& r : remedies) {
    fits +=
        fmt::format("{}{} {}", fits.empty() ? "" : ", or ", r.change, r.fits);
  }
  // Recomputing is no remedy, and is named so that nobody tries it.
  std::string recompute;
  if (const int64_t saved = budget.recompute_saves(); saved > 0) {
    recompute = fmt::format(
        "; recompute saves {} of every other layer, of this call nothing",
        gib(saved));
  }
  const PassMemory& pass = budget.largest();
  const bool sinks = budget.sinks && &pass == &*budget.sinks;
  return over_limit(
      "fit", "the {} pass must fit the {} of a {} device, found {} ({}{}; {})",
      sinks           ? "sink telemetry"
      : pass.backward ? "backward"
                      : "forward",
      gib(budget.chip.room), budget.chip.name, gib(budget.needed()),
      largest_parts(pass), recompute,
      fits.empty() ? "no change alone would fit" : "what would fit: " + fits);
}

Result<void> check_fits(const FitCall& asked, const Budget& budget) {
  if (budget.fits()) return {};
  return fit::too_large(budget, what_fits(asked));
}

Result<void> check_room(const FitCall& asked) {
  const auto budget = make_budget(asked);
  if (!budget || !budget->beyond_room()) return {};
  return fit::too_large(*budget, what_fits(asked));
}

}  // namespace tessera
