// bench/xla/settings.cc: reads and checks the flags.
#include "bench/xla/settings.h"

#include <utility>

#include "base/fail.h"
#include "base/text.h"
#include "bench/harness/flags.h"
#include "request/numbers.h"

namespace tessera::bench {

using request::parse_int;
using request::split;

// All cases but decode, whose worklist would have every key.
std::string xla_cases() {
  std::string out;
  for (const AttentionCase& c : attention_cases()) {
    if (c.decode) continue;
    out += out.empty() ? "" : ", ";
    out += c.name;
  }
  return out;
}

Result<XlaSettings> read_settings(const XlaFlags& o) {
  XlaSettings s;
  auto tokens = parse_int(o.tokens, "--tokens", 64, 1 << 17);
  if (!tokens) return tokens.error();
  auto rounds = parse_int(o.rounds, "--rounds", 1, 1000);
  if (!rounds) return rounds.error();
  auto heads = parse_int(o.heads, "--heads", 1, 1024);
  if (!heads) return heads.error();
  auto kv_heads =
      parse_int(o.kv_heads.value_or(o.heads), "--kv-heads", 1, *heads);
  if (!kv_heads) return kv_heads.error();
  if (*heads % *kv_heads != 0) {
    return invalid("cli", "--kv-heads must divide --heads, found {} for {}",
                   *kv_heads, *heads);
  }
  auto dim = parse_int(o.head_dim, "--head-dim", 8, 512);
  if (!dim) return dim.error();
  auto device = parse_int(o.device, "--device", 0, INT32_MAX);
  if (!device) return device.error();
  auto dtypes = parse_dtypes(o.dtype);
  if (!dtypes) return dtypes.error();
  for (const std::string_view word : split(o.cases, ',')) {
    const AttentionCase* c = find_case(word);
    if (!c || c->decode) {
      return invalid("cli", "--cases must be of {}, found {}", xla_cases(),
                     in_quotes(word));
    }
    s.cases.push_back(c);
  }
  for (const std::string_view word : split(o.methods, ',')) {
    auto method = parse_xla_method(word);
    if (!method) return method.error();
    s.methods.push_back(*method);
  }
  if (auto e = check_cache(o.cache); !e) return e.error();
  if (auto e = check_result(o.out); !e) return e.error();
  s.dtypes = std::move(*dtypes);
  s.tokens = *tokens;
  s.rounds = *rounds;
  s.shape.heads = *heads;
  s.shape.kv_heads = *kv_heads;
  s.shape.head_dim = s.shape.v_head_dim = *dim;
  s.xla.plugin = o.plugin.value_or("xla_cpu_pjrt");
  s.xla.device = *device;
  s.xla.cache_folder = o.cache.value_or("");
  return s;
}

}  // namespace tessera::bench
