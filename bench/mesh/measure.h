// bench/mesh/measure.h: times one device and meshes in turns, with host arrays
// and with arrays that stay on the devices.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "receipt/receipt.h"
#include "request/attention_data.h"
#include "tessera/session.h"

namespace tessera::bench {

struct MeshSettings {
  int64_t tokens = 8192, devices = 4, layers = 4, rounds = 3;
  double mean = 1500;  // tokens of a document
  AttentionShape shape{8, 2, 128, 128, {}, 0};
  std::string plugin;  // also for the single device
};

// Milliseconds of a layer, in one run or as medians of runs. `cpu` is CPU time
// of all cores in both passes. The stay_ times are those of arrays that stay on
// the devices, without put() and fetch(), which are in put_and_fetch.
struct MeshTimes {
  double forward = 0, backward = 0, cpu = 0;
  double stay_forward = 0, stay_backward = 0, put_and_fetch = 0;
};

struct MeshContender {
  std::string name;
  Mesh mesh;  // empty: one device
  Balance balance = Balance::rows;
  MeshTimes times;
  receipt::Receipt::Check check;
};

std::vector<MeshContender> mesh_contenders(const MeshSettings& s);
// Checks each contender with both kinds of arrays, then measures all.
Result<void> measure_mesh(const MeshSettings& s,
                          std::vector<MeshContender>& contenders);

}  // namespace tessera::bench
