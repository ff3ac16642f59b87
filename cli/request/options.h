// cli/request/options.h: a request as it is asked for, before it is resolved.
// Flags and spec files fill the same struct with the same syntax.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera::cli {

struct RequestOptions {
  std::vector<std::string> masks;  // one, or one per group of heads
  std::optional<int64_t> q_len;
  std::optional<int64_t> kv_len;
  std::optional<int64_t> batch;
  std::optional<std::string> q_offset;       // "N[,N...]"
  std::optional<std::string> tile;           // "256x256"
  std::optional<std::string> logical_block;  // "128x128"
  std::optional<std::string> docs;    // FILE, "lognormal:...", "lengths:..."
  std::optional<std::string> q_docs;  // the same, for queries
  std::vector<std::string> valid;     // each entry one --valid
  std::optional<std::string> prefix;  // "N[,N...]"
  std::optional<std::string> picks;   // a .safetensors file
  std::optional<std::string> target;  // "v6e"
  std::optional<int64_t> max_steps;
  std::optional<int64_t> max_width;
  std::optional<int64_t> max_union;

  bool operator==(const RequestOptions&) const = default;
};

}  // namespace tessera::cli
