// run/gate_cases.h: what measure_gate measures.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tessera/dispatch.h"

namespace tessera::run {

inline constexpr int64_t kDecodeGroup = 4;  // query heads of a K/V head

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

// Every kernel of ours with every class of request, several densities each;
// where Splash's is there, it and ours at its own sizes. The sizes must outlive
// them.
std::vector<GateCase> gate_cases(const GateSizes& sizes);

}  // namespace tessera::run
