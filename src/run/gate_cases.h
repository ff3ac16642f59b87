// run/gate_cases.h: the cases that measure_gate measures.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/dispatch.h"

namespace tessera::run {

inline constexpr int64_t kDecodeGroup = 4;  // query heads for each K/V head

struct GateCase {
  std::string kernel;  // "cpu/forward"
  LaneId lane = LaneId::cpu;
  Request request;
  std::vector<int32_t> doc_ids;  // one for each key; empty: no documents
  AttentionShape shape;
  Dtype dtype = Dtype::f32;
  bool backward = false;
  const BridgeArtifact* artifact = nullptr;  // lane splash: GateSizes::artifact
};

AttentionCall attention_call(const GateCase& c);
RequestFeatures features_of(const GateCase& c);

// Each of our kernels with every class of request at several densities. If the
// sizes have a Splash artifact, also that artifact and our kernels at its
// sizes. `sizes` must outlive the cases, which point to its artifact.
std::vector<GateCase> gate_cases(const GateSizes& sizes);

}  // namespace tessera::run
