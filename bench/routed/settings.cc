// bench/routed/settings.cc: checks the flags, and the memory that they need.
#include "bench/routed/settings.h"

#include <algorithm>
#include <utility>

#include "base/fail.h"
#include "base/isa.h"
#include "base/text.h"
#include "base/threads.h"
#include "bench/harness/flags.h"
#include "cli/numbers.h"
#include "lanes/tensors.h"
#include "receipt/machine.h"
#include "request/numbers.h"
#include "route/settings.h"

namespace tessera::bench {

using cli::parse_seed;
using request::parse_int;
using request::parse_ints;
using request::parse_positive;

namespace {

constexpr int64_t kMaxRoutedTokens = int64_t{1} << 20;

Result<void> parse_sizes(const RoutedFlags& o, RoutedSettings& s) {
  auto heads = parse_int(o.heads, "--heads", 1, 1024);
  if (!heads) return heads.error();
  auto kv_heads =
      parse_int(o.kv_heads.value_or(o.heads), "--kv-heads", 1, 1024);
  if (!kv_heads) return kv_heads.error();
  if (*heads % *kv_heads != 0) {
    return invalid("cli", "--kv-heads must divide --heads, found {} for {}",
                   *kv_heads, *heads);
  }
  auto dim =
      parse_int(o.head_dim, "--head-dim", lanes::kDimStep, lanes::kMaxDim);
  if (!dim) return dim.error();
  if (*dim % lanes::kDimStep != 0) {
    return invalid("cli", "--head-dim must be a multiple of {}, found {}",
                   lanes::kDimStep, *dim);
  }
  auto dtypes = parse_dtypes(o.dtype);
  if (!dtypes) return dtypes.error();
  s.dtypes = std::move(*dtypes);
  auto meaning = parse_route_meaning(o.meaning);
  if (!meaning) return meaning.error();
  auto spread = parse_positive(o.spread, "--spread");
  if (!spread) return spread.error();
  auto seed = parse_seed(o.seed);
  if (!seed) return seed.error();
  s.sizes.threads = machine_threads();
  if (o.threads) {
    auto threads = parse_int(*o.threads, "--threads", 1, kMaxThreads);
    if (!threads) return threads.error();
    s.sizes.threads = static_cast<int>(*threads);
  }
  s.sizes.shape.heads = *heads;
  s.sizes.shape.kv_heads = *kv_heads;
  s.sizes.shape.head_dim = s.sizes.shape.v_head_dim = *dim;
  s.sizes.dtype = s.dtypes.front();
  s.sizes.meaning = *meaning;
  s.sizes.spread = *spread;
  s.sizes.seed = *seed;
  if (o.dense_heads) {
    auto n = parse_int(*o.dense_heads, "--dense-heads", 1, *heads);
    if (!n) return n.error();
    const int64_t group = *heads / *kv_heads;
    if (*n > group && *n % group != 0) {
      return invalid("cli",
                     "--dense-heads must be whole groups of {} heads, or less "
                     "than one, found {}",
                     group, *n);
    }
    s.dense_heads = *n;
  }
  return {};
}

Result<std::vector<int32_t>> parse_lengths(const std::string& text,
                                           std::string_view flag) {
  auto out = parse_ints(text, flag, kRoutedBlock, kMaxRoutedTokens);
  if (!out) return out;
  for (const int32_t n : *out) {
    if (n % kRoutedBlock == 0) continue;
    return invalid("cli", "{} must be multiples of the block {}, found {}",
                   flag, kRoutedBlock, n);
  }
  return out;
}

// The most blocks that a query picks.
double most_top(const RoutedSettings& s, int64_t tokens) {
  if (s.top) return static_cast<double>(*s.top);
  const double blocks = static_cast<double>(tokens) / kRoutedBlock;
  return std::max(1.0, s.density * blocks);
}

// Bytes of all picks of a run in one array.
double pick_bytes(const RoutedSettings& s, int64_t tokens, double top) {
  return 4 * static_cast<double>(s.sizes.shape.heads) *
         static_cast<double>(tokens) * top;
}

Result<void> check_memory(const RoutedSettings& s) {
  const auto check = [](double needed, int64_t tokens) -> Result<void> {
    return receipt::check_free(
        "bench", needed, fmt::format("arrays and picks of {} tokens", tokens));
  };
  RoutedSizes sizes = s.sizes;
  sizes.dtype =
      std::find(s.dtypes.begin(), s.dtypes.end(), Dtype::f32) != s.dtypes.end()
          ? Dtype::f32
          : Dtype::bf16;
  for (const int32_t tokens : s.tokens) {
    double needed = RoutedCase::bytes(sizes, tokens, true);
    // The peer's file while it is written, then the peer's own arrays.
    if (!s.peer.folder.empty()) needed *= 3;
    // Two runs are held, each with picks, slots, unions and intervals.
    needed += 2 * 6 * pick_bytes(s, tokens, most_top(s, tokens));
    if (auto e = check(needed, tokens); !e) return e;
  }
  const double top = most_top(s, s.tokens.front());
  for (const int32_t tokens : s.growth) {
    // Picks, slots and unions. Unions can be wider than picks, but routing
    // checks their size itself before it makes them.
    const double needed = RoutedCase::bytes(s.sizes, tokens, false) +
                          3 * pick_bytes(s, tokens, top);
    if (auto e = check(needed, tokens); !e) return e;
  }
  return {};
}

}  // namespace

Result<RoutedSettings> read_settings(const RoutedFlags& o) {
  RoutedSettings s;
  auto tokens = parse_lengths(o.tokens, "--tokens");
  if (!tokens) return tokens.error();
  s.tokens = *tokens;
  if (auto e = parse_sizes(o, s); !e) return e.error();
  auto density = parse_positive(o.density, "--density");
  if (!density) return density.error();
  if (*density > 1) {
    return invalid("cli", "--density must be at most 1, found {:g}", *density);
  }
  s.density = *density;
  if (o.top) {
    auto top = parse_int(*o.top, "--top", 1, routing::kMaxTop);
    if (!top) return top.error();
    s.top = *top;
  }
  auto rounds = parse_int(o.rounds, "--rounds", 1, 1000);
  if (!rounds) return rounds.error();
  s.rounds = *rounds;
  if (o.growth && *o.growth != "off") {
    auto growth = parse_lengths(*o.growth, "--growth");
    if (!growth) return growth.error();
    s.growth = *growth;
    std::sort(s.growth.begin(), s.growth.end());
  } else if (!o.growth) {
    const auto [least, most] =
        std::minmax_element(s.tokens.begin(), s.tokens.end());
    const int32_t half = *least / 2;
    for (int32_t n = half % kRoutedBlock == 0 ? half : *least; n <= *most;
         n *= 2) {
      s.growth.push_back(n);
    }
  }
  auto seconds = parse_positive(o.seconds, "--seconds");
  if (!seconds) return seconds.error();
  auto limit = parse_positive(o.peer_limit, "--peer-limit");
  if (!limit) return limit.error();
  if (auto e = check_peers(o.peers); !e) return e.error();
  s.peer.folder = o.peers.value_or("");
  s.peer.threads = s.sizes.threads;
  auto isa = choose_isa({});
  if (!isa) return isa.error();
  s.peer.isa = *isa;
  s.peer.seconds = *seconds;
  s.peer.limit = *limit;
  if (auto e = check_result(o.out); !e) return e.error();
  if (auto e = check_memory(s); !e) return e.error();
  return s;
}

}  // namespace tessera::bench
