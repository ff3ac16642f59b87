// model/parameter_parts.cc: cuts each section of the split dimension alike.
#include "model/parameter_parts.h"

#include <cassert>
#include <functional>
#include <numeric>

namespace tessera::model {
namespace {

// The dimension that is split, or the rank if none is: a vocabulary that does
// not divide evenly stays whole.
size_t split_dimension(const ModelParameter& p, int64_t parts) {
  const auto at = static_cast<size_t>(std::ranges::find(p.axes, kHeadAxis) -
                                      p.axes.begin());
  const bool splits = at < p.axes.size() && p.shape[at] % parts == 0;
  return splits ? at : p.axes.size();
}

}  // namespace

int64_t numbers_of(const std::vector<ModelParameter>& parameters) {
  return std::accumulate(
      parameters.begin(), parameters.end(), int64_t{0},
      [](int64_t n, const ModelParameter& p) { return n + p.size(); });
}

Axes axes_on(const Mesh& mesh, const ModelParameter& p) {
  Axes out = p.axes;
  for (std::string& axis : out) {
    if (!mesh.has(axis)) axis.clear();
  }
  return out;
}

bool is_split(const Mesh& mesh, const ModelParameter& p) {
  const int64_t parts = mesh.size(kHeadAxis);
  return parts > 1 && split_dimension(p, parts) < p.axes.size();
}

std::vector<int64_t> part_shape(const Mesh& mesh, const ModelParameter& p) {
  std::vector<int64_t> out = p.shape;
  if (is_split(mesh, p)) {
    const int64_t parts = mesh.size(kHeadAxis);
    out[split_dimension(p, parts)] /= parts;
  }
  return out;
}

std::vector<Run> runs_of(const ModelParameter& p, int64_t n, int64_t parts) {
  const size_t along = split_dimension(p, parts);
  if (along == p.axes.size() || parts == 1) return {{0, p.size()}};
  const auto at = p.shape.begin() + static_cast<int64_t>(along);
  const auto product = [](auto begin, auto end) {
    return std::accumulate(begin, end, int64_t{1}, std::multiplies<>());
  };
  const int64_t outer = product(p.shape.begin(), at);
  const int64_t inner = product(at + 1, p.shape.end());
  std::vector<int64_t> sections = p.sections;
  if (sections.empty()) sections.push_back(*at);
  std::vector<Run> out;
  int64_t begin = 0;
  for (int64_t i = 0; i < outer; ++i) {
    for (const int64_t section : sections) {
      assert(section % parts == 0);
      const int64_t some = section / parts * inner;
      out.push_back({begin + n * some, some});
      begin += section * inner;
    }
  }
  return out;
}

}  // namespace tessera::model
