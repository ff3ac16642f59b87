// model/parameter_parts.h: how many numbers parameters have, and what a device
// of a mesh has of one, and of its moments.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "tessera/train.h"

namespace tessera::model {

// Of all arrays.
int64_t numbers_of(const std::vector<ModelParameter>& parameters);

// The axis that heads are divided along, the MLP's width and, where it divides,
// the vocabulary.
inline constexpr std::string_view kHeadAxis = "head";

// Of each dimension of an array the axis that splits it, or "".
using Axes = std::vector<std::string>;
// Of the axes that it says, those of the mesh.
Axes axes_on(const Mesh& mesh, const ModelParameter& p);
bool is_split(const Mesh& mesh, const ModelParameter& p);
std::vector<int64_t> part_shape(const Mesh& mesh, const ModelParameter& p);

// Numbers that lie side by side in the whole array.
struct Run {
  int64_t begin = 0, size = 0;
};
// Of the n-th part along the axis head, in the order in which its device has
// them: a part of each section, one after the other.
std::vector<Run> runs_of(const ModelParameter& p, int64_t n, int64_t parts);

template <class T>
std::vector<T> take_part(const ModelParameter& p, const std::vector<T>& whole,
                         int64_t n, int64_t parts) {
  std::vector<T> out;
  out.reserve(whole.size() / static_cast<size_t>(parts));
  for (const Run& r : runs_of(p, n, parts)) {
    const auto from = whole.begin() + r.begin;
    out.insert(out.end(), from, from + r.size);
  }
  return out;
}

// The way back.
template <class T>
void give_part(const ModelParameter& p, const std::vector<T>& part, int64_t n,
               int64_t parts, std::vector<T>& whole) {
  auto from = part.begin();
  for (const Run& r : runs_of(p, n, parts)) {
    std::copy_n(from, r.size, whole.begin() + r.begin);
    from += r.size;
  }
}

}  // namespace tessera::model
