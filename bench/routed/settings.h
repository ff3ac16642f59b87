// bench/routed/settings.h: the flags of `tessera-bench routed`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/routed/case.h"
#include "bench/routed/peer.h"

namespace tessera::bench {

// The flags as typed.
struct RoutedFlags {
  std::string tokens = "32768,131072";
  std::string heads = "8";
  std::string head_dim = "128";
  std::string dtype = "f32,bf16";
  std::string density = "0.125";
  std::string spread = "0.02";
  std::string meaning = "exact";
  std::string seed = "0";
  std::string rounds = "3";
  std::string seconds = "2";
  std::string peer_limit = "1800";
  std::optional<std::string> kv_heads, threads, top, dense_heads, growth, peers,
      out;
  bool json = false;
};

struct RoutedSettings {
  RoutedSizes sizes;
  std::vector<int32_t> tokens, growth;
  std::vector<Dtype> dtypes;  // of the tables; `sizes` has the first
  double density = 0;
  std::optional<int64_t> top, dense_heads;
  int64_t rounds = 0;
  RoutedPeerRequest peer;
};

// Also refuses sizes that do not fit the free memory.
Result<RoutedSettings> read_settings(const RoutedFlags& flags);

}  // namespace tessera::bench
