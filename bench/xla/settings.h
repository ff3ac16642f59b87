// bench/xla/settings.h: the flags of `tessera-bench xla`.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/harness/cases.h"
#include "tessera/attention.h"
#include "tessera/machine.h"

namespace tessera::bench {

// The flags as typed.
struct XlaFlags {
  std::string tokens = "8192";
  std::string cases = "window";
  std::string dtype = "f32,bf16";
  std::string methods = "worklist,chunked,dense";
  std::string heads = "4";
  std::string head_dim = "128";
  std::optional<std::string> kv_heads;
  std::string rounds = "3";
  std::string device = "0";
  std::optional<std::string> plugin, cache, out;
  bool backward = false;
  bool json = false;
  bool program = false;
};

struct XlaSettings {
  int64_t tokens = 0, rounds = 0;
  AttentionShape shape;
  std::vector<Dtype> dtypes;
  std::vector<const AttentionCase*> cases;
  std::vector<XlaMethod> methods;
  XlaOptions xla;
};

// The names of its cases: "full, causal, ...".
std::string xla_cases();

Result<XlaSettings> read_settings(const XlaFlags& flags);

}  // namespace tessera::bench
