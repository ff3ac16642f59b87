// bench/attention/settings.h: the flags of `tessera-bench attention`.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/harness/cases.h"
#include "tessera/machine.h"

namespace tessera::bench {

// The flags as typed.
struct AttentionFlags {
  std::string tokens = "4096";
  std::string head_dim = "128";
  std::string dtype = "f32,bf16";
  std::string cases;    // empty: all
  std::string threads;  // empty: every core
  std::string seconds = "2";
  std::string peer_limit = "300";
  std::optional<std::string> mask, isa, peers, out, results;
  bool backward = false;
  bool json = false;
};

struct AttentionSettings {
  std::vector<int32_t> tokens, head_dims, threads;
  std::vector<Dtype> dtypes;
  std::vector<const AttentionCase*> cases;
  std::shared_ptr<const AttentionCase> asked;  // the case of --mask
  double seconds = 0;
  double peer_limit = 0;
  Isa isa = Isa::portable;
  bool isa_forced = false;
};

Result<AttentionSettings> read_settings(const AttentionFlags& flags);

}  // namespace tessera::bench
