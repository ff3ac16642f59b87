// request/unsupported.cc: what people ask an attention library for and this one
// does not have.
#include "request/unsupported.h"

#include <algorithm>

namespace tessera::request {
namespace {

constexpr std::string_view kDropout =
    "dropout is not here: attention is exact, and a plan has no random part";
constexpr std::string_view kBias =
    "additive bias is not here: scores have a softcap and a mask, nothing is "
    "added to them";
constexpr std::string_view kPaged =
    "paged KV is not here: keys and values are dense arrays, and a plan "
    "addresses them by position";
constexpr std::string_view kScoreMod =
    "score functions are not here: a mask is an expression that is planned "
    "ahead, never code that runs per score";
constexpr std::string_view kDenseMask =
    "dense masks are not here: write the rule as --mask, or give its blocks as "
    "--picks";

constexpr Refused kRefused[] = {
    {"dropout", kDropout},
    {"dropout_p", kDropout},
    {"dropout_rate", kDropout},
    {"dropout_seed", kDropout},
    {"attention_dropout", kDropout},
    {"bias", kBias},
    {"attn_bias", kBias},
    {"attention_bias", kBias},
    {"additive_bias", kBias},
    {"relative_bias", kBias},
    {"alibi", kBias},
    {"alibi_slopes", kBias},
    {"page_table", kPaged},
    {"page_size", kPaged},
    {"pages", kPaged},
    {"block_table", kPaged},
    {"block_tables", kPaged},
    {"paged", kPaged},
    {"paged_kv", kPaged},
    {"paged_attention", kPaged},
    {"kv_cache", kPaged},
    {"kv_cache_pages", kPaged},
    {"kv_pages", kPaged},
    {"score_mod", kScoreMod},
    {"mask_mod", kScoreMod},
    {"attn_mask", kDenseMask},
    {"attention_mask", kDenseMask},
    {"dense_mask", kDenseMask},
    {"key_padding_mask",
     "padding masks are not here: give the counts as --valid, or padding ids "
     "of -1 as --docs"},
    {"rope",
     "position encodings are not here: rotate queries and keys before they "
     "are attended"},
};

char folded(char c) {
  if (c >= 'A' && c <= 'Z') return static_cast<char>(c - 'A' + 'a');
  return c == '-' ? '_' : c;
}

}  // namespace

std::span<const Refused> refused_names() { return kRefused; }

std::optional<std::string_view> refusal(std::string_view name) {
  for (const Refused& r : kRefused) {
    if (std::equal(r.name.begin(), r.name.end(), name.begin(), name.end(),
                   [](char l, char n) { return l == folded(n); })) {
      return r.reason;
    }
  }
  return {};
}

}  // namespace tessera::request
