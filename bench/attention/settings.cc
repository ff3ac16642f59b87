// bench/attention/settings.cc: reads and checks the flags.
#include "bench/attention/settings.h"

#include <utility>

#include "base/fail.h"
#include "base/isa.h"
#include "base/text.h"
#include "base/threads.h"
#include "bench/harness/flags.h"
#include "cli/given_flags.h"
#include "lanes/tensors.h"
#include "request/numbers.h"

namespace tessera::bench {

using request::parse_ints;
using request::parse_positive;
using request::split;

namespace {

Result<std::vector<const AttentionCase*>> parse_cases(std::string_view text) {
  std::vector<const AttentionCase*> out;
  if (text.empty()) {
    for (const AttentionCase& c : attention_cases()) out.push_back(&c);
    return out;
  }
  for (const std::string_view word : split(text, ',')) {
    const AttentionCase* c = find_case(word);
    if (!c) {
      return invalid("cli", "--cases must be of {}, found {}", case_names(),
                     in_quotes(word));
    }
    out.push_back(c);
  }
  return out;
}

// The case of --mask, which no peer has.
Result<std::shared_ptr<const AttentionCase>> asked_case(
    const AttentionFlags& o) {
  const auto found = cli::first_given({{"--peers", o.peers.has_value()},
                                       {"--results", o.results.has_value()},
                                       {"--cases", !o.cases.empty()}});
  if (!found.empty()) {
    return invalid("cli", "--mask is a case of its own, found {} beside it",
                   found);
  }
  auto mask = parse_mask(*o.mask);
  if (!mask) return mask.error();
  auto out = std::make_shared<AttentionCase>();
  out->name = "mask";
  out->mask = *o.mask;
  out->documents = mask->names.documents || mask->names.segments;
  return std::shared_ptr<const AttentionCase>(std::move(out));
}

}  // namespace

Result<AttentionSettings> read_settings(const AttentionFlags& o) {
  AttentionSettings s;
  auto tokens = parse_ints(o.tokens, "--tokens", 64, 1 << 20);
  if (!tokens) return tokens.error();
  auto head_dims =
      parse_ints(o.head_dim, "--head-dim", lanes::kDimStep, lanes::kMaxDim);
  if (!head_dims) return head_dims.error();
  auto threads = parse_ints(
      o.threads.empty() ? std::to_string(machine_threads()) : o.threads,
      "--threads", 1, kMaxThreads);
  if (!threads) return threads.error();
  auto dtypes = parse_dtypes(o.dtype);
  if (!dtypes) return dtypes.error();
  auto cases = parse_cases(o.cases);
  if (!cases) return cases.error();
  auto seconds = parse_positive(o.seconds, "--seconds");
  if (!seconds) return seconds.error();
  auto limit = parse_positive(o.peer_limit, "--peer-limit");
  if (!limit) return limit.error();
  for (const int32_t dim : *head_dims) {
    if (dim % lanes::kDimStep != 0) {
      return invalid("cli", "--head-dim must be multiples of {}, found {}",
                     lanes::kDimStep, dim);
    }
  }
  if (auto e = check_peers(o.peers); !e) return e.error();
  std::optional<Isa> forced;
  if (o.isa) {
    auto isa = parse_isa(*o.isa);
    if (!isa) return isa.error();
    forced = *isa;
  }
  auto isa = choose_isa(forced);
  if (!isa) return isa.error();
  s.isa = *isa;
  s.isa_forced = forced.has_value() || *isa != machine_isas().back();
  if (auto e = check_result(o.out); !e) return e.error();
  s.tokens = std::move(*tokens);
  s.head_dims = std::move(*head_dims);
  s.threads = std::move(*threads);
  s.dtypes = std::move(*dtypes);
  s.cases = std::move(*cases);
  if (o.mask) {
    auto asked = asked_case(o);
    if (!asked) return asked.error();
    s.asked = *asked;
    s.cases = {s.asked.get()};
  }
  s.seconds = *seconds;
  s.peer_limit = *limit;
  return s;
}

}  // namespace tessera::bench
