// cli/gate/cases.h: what `tessera gate` measures.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tessera/bridge.h"
#include "tessera/dispatch.h"

namespace tessera::cli {

struct GateCase {
  std::string kernel;  // "cpu/forward"
  LaneId lane = LaneId::cpu;
  Request request;
  std::vector<int32_t> doc_ids;  // of every key; empty: none
  AttentionShape shape;
  Dtype dtype = Dtype::f32;
  bool backward = false;
  const BridgeArtifact* artifact = nullptr;  // of lane splash: the sizes'
};

AttentionCall attention_call(const GateCase& c);
RequestFeatures features_of(const GateCase& c);

struct GateSizes {
  std::vector<int64_t> tokens;
  std::vector<Dtype> dtypes;
  int64_t heads = 8, head_dim = 128;
  std::vector<int64_t> decode_keys = {2048, 8192};
  std::optional<BridgeArtifact> artifact = {};  // Splash's kernel
};

// Every kernel of ours with every class of request, several densities each;
// where Splash's is there, it and ours at its own sizes. The sizes must outlive
// them.
std::vector<GateCase> gate_cases(const GateSizes& sizes);

}  // namespace tessera::cli
