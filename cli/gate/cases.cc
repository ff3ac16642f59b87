// cli/gate/cases.cc: kernels times request classes times densities.
#include "cli/gate/cases.h"

#include <fmt/format.h>

#include <algorithm>

#include "run/features.h"
#include "run/lane_rules.h"

namespace tessera::cli {
namespace {

constexpr int64_t kTile = 128;
constexpr int64_t kMosaicTileSide = 256;
constexpr double kSoftcap = 30;
constexpr int64_t kDecodeGroup = 4;  // query heads of a K/V head

struct Rule {
  std::string mask;
  int64_t documents = 0;  // of one length each
  double softcap = 0;
};

// The densest of each class first.
std::vector<Rule> rules(int64_t tokens) {
  const auto window = [&](int64_t share) {
    return fmt::format("causal & window({}, 0)",
                       std::max<int64_t>(1, tokens / share) - 1);
  };
  return {{"full"},
          {"causal"},
          {"causal", 0, kSoftcap},
          {window(4)},
          {window(16)},
          {"causal & documents", 2},
          {"causal & documents", 8},
          {"causal & documents", 32}};
}

}  // namespace

AttentionCall call_of(const GateCase& c) {
  AttentionCall call;
  call.shape = c.shape;
  call.dtype = c.dtype;
  call.backward = c.backward;
  return call;
}

RequestFeatures features_of(const GateCase& c) {
  return features_of(c.request, {}, c.shape, run::call_features(call_of(c)));
}

std::vector<GateCase> gate_cases(const GateSizes& sizes) {
  std::vector<GateCase> out;
  for (const Dtype dtype : sizes.dtypes) {
    for (const int64_t tokens : sizes.tokens) {
      for (const Rule& rule : rules(tokens)) {
        GateCase c;
        c.dtype = dtype;
        c.request.masks = {*parse_mask(rule.mask)};
        c.request.q_len = c.request.kv_len = tokens;
        c.shape = {sizes.heads,    sizes.heads, sizes.head_dim,
                   sizes.head_dim, {},          rule.softcap};
        for (int64_t i = 0; rule.documents > 0 && i < tokens; ++i) {
          c.doc_ids.push_back(
              static_cast<int32_t>(i * rule.documents / tokens));
        }
        for (const bool backward : {false, true}) {
          c.lane = LaneId::cpu;
          c.kernel = backward ? "cpu/backward" : "cpu/forward";
          c.backward = backward;
          c.request.tile = {kTile, kTile};
          out.push_back(c);
        }
        for (const bool backward : {false, true}) {
          c.lane = LaneId::mosaic;
          c.kernel = backward ? "mosaic/backward" : "mosaic/forward";
          c.backward = backward;
          c.request.tile = {kMosaicTileSide, kMosaicTileSide};
          const RequestFeatures f = features_of(c);
          if (!run::cannot(facts_of(LaneId::mosaic), f)) out.push_back(c);
        }
      }
    }
    for (const int64_t keys : sizes.decode_keys) {
      GateCase decode;
      decode.kernel = "cpu/decode";
      decode.dtype = dtype;
      decode.request.masks = {*parse_mask("full")};
      decode.request.q_len = 1;
      decode.request.kv_len = keys;
      decode.request.tile = {kTile, kTile};
      decode.shape = {kDecodeGroup * sizes.heads,
                      sizes.heads,
                      sizes.head_dim,
                      sizes.head_dim,
                      {},
                      0};
      out.push_back(std::move(decode));
    }
  }
  return out;
}

}  // namespace tessera::cli
