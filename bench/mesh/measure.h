// bench/mesh/measure.h: one device and a mesh of them in turns, over arrays of
// the host and over arrays that stay.
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
  double mean = 1500;  // of documents
  AttentionShape shape{8, 2, 128, 128, {}, 0};
  std::string plugin;  // of one device too
};

// Milliseconds a layer, of a run over either kind of arrays or medians of both;
// `cpu` of all cores, both passes. Of arrays that stay, what put() and fetch()
// take is apart.
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
// Judges each over both kinds of arrays, then takes the times.
Result<void> measure_mesh(const MeshSettings& s,
                          std::vector<MeshContender>& contenders);

}  // namespace tessera::bench
