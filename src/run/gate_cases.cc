// run/gate_cases.cc: kernels times request classes times densities.
#include "run/gate_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "run/features.h"
#include "run/lane_rules.h"

namespace tessera::run {
namespace {

constexpr int64_t kTile = 128;
constexpr int64_t kMosaicTileSide = 256;
constexpr double kSoftcap = 30;

struct Rule {
  std::string mask;
  int64_t documents = 0;  // all of equal length
  double softcap = 0;
};

// Within a class the densest mask comes first.
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

AttentionCall attention_call(const GateCase& c) {
  AttentionCall call;
  call.shape = c.shape;
  call.dtype = c.dtype;
  call.backward = c.backward;
  return call;
}

RequestFeatures features_of(const GateCase& c) {
  CallFeatures call = call_features(attention_call(c));
  if (c.artifact) take_artifact(c.artifact->spec, call);
  return features_of(c.request, {}, c.shape, call);
}

namespace {

struct Lengths {
  int64_t q = 0, kv = 0;
};

// A case without a kernel and a lane.
GateCase case_of(const Rule& rule, const Lengths& lengths, Dtype dtype,
                 const AttentionShape& shape) {
  GateCase out;
  out.request.masks = {*parse_mask(rule.mask)};
  out.request.q_len = lengths.q;
  out.request.kv_len = lengths.kv;
  out.shape = shape;
  out.dtype = dtype;
  for (int64_t i = 0; rule.documents > 0 && i < lengths.kv; ++i) {
    out.doc_ids.push_back(
        static_cast<int32_t>(i * rule.documents / lengths.kv));
  }
  return out;
}

// Adds the lane's kernels that can run the case.
void add_kernels(LaneId lane, const Tile& tile, GateCase c, bool with_backward,
                 std::vector<GateCase>& out) {
  c.lane = lane;
  c.request.tile = tile;
  for (const bool backward : {false, true}) {
    if (backward && !with_backward) break;
    c.backward = backward;
    c.kernel = fmt::format("{}/{}", to_string(lane),
                           backward ? "backward" : "forward");
    if (!cannot(facts_of(lane), features_of(c))) out.push_back(c);
  }
}

void add_ours(const GateCase& c, bool with_backward,
              std::vector<GateCase>& out) {
  add_kernels(LaneId::cpu, {kTile, kTile}, c, with_backward, out);
  add_kernels(LaneId::mosaic, {kMosaicTileSide, kMosaicTileSide}, c,
              with_backward, out);
}

// A Splash artifact is forward only, with one softcap and one tile.
void add_artifact(const BridgeArtifact& artifact, std::vector<GateCase>& out) {
  const BridgeSplash& has = *artifact.spec.splash;
  for (const Rule& rule : rules(has.kv_len)) {
    if (rule.softcap != 0) continue;
    GateCase c = case_of(rule, {has.q_len, has.kv_len}, has.dtype, has.shape);
    add_ours(c, /*with_backward=*/false, out);
    c.artifact = &artifact;
    add_kernels(LaneId::splash, {has.block_q, has.block_kv}, std::move(c),
                /*with_backward=*/false, out);
  }
}

}  // namespace

std::vector<GateCase> gate_cases(const GateSizes& sizes) {
  std::vector<GateCase> out;
  for (const Dtype dtype : sizes.dtypes) {
    for (const int64_t tokens : sizes.tokens) {
      for (const Rule& rule : rules(tokens)) {
        const AttentionShape shape = {
            sizes.heads,    sizes.heads, sizes.head_dim,
            sizes.head_dim, {},          rule.softcap};
        add_ours(case_of(rule, {tokens, tokens}, dtype, shape),
                 /*with_backward=*/true, out);
      }
    }
    for (const int64_t keys : sizes.decode_keys) {
      const AttentionShape shape = {kDecodeGroup * sizes.heads,
                                    sizes.heads,
                                    sizes.head_dim,
                                    sizes.head_dim,
                                    {},
                                    0};
      GateCase decode = case_of({"full"}, {1, keys}, dtype, shape);
      decode.kernel = "cpu/decode";
      decode.request.tile = {kTile, kTile};
      out.push_back(std::move(decode));
    }
  }
  if (sizes.artifact) add_artifact(*sizes.artifact, out);
  return out;
}

}  // namespace tessera::run
